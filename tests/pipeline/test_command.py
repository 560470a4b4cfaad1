"""The command as users run it, and the content of the table of counts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import tailrace
from tailrace.cli import main
from tailrace.observe.health_check import request
from tailrace.pipeline import class_archive, views
from tests.daemon import until
from tests.machine import free_port
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


def test_a_running_pipeline_follows_and_stops(pipeline: Pipeline, tmp_path: Path) -> None:
    """Batches arrive while it runs; SIGTERM publishes everything and ends it with exit code 0.

    The columns of its file are those of the view, and values that do not fit them are counted.
    """
    s, port = Stream(), free_port()
    pipeline.land([s.insert("k", n=1)])
    path = tmp_path / "config.yaml"
    document = {
        "mongodb": {"uri": "${MONGODB_URI}"},  # which is not set: the pipeline needs none
        "scopes": [{"name": "orders"}],
        "handlers": {"log": {"type": "log"}},
        "routes": [{"scope": "orders", "handlers": ["log"]}],
        "pipeline": {
            "lake": str(pipeline.lake),
            "tables": str(pipeline.tables),
            "master": "local[2]",
            "interval_seconds": 0.1,
            "http": {"port": port},
            "spark": SETTINGS,
            "history": False,
            "publish_ratio": 5,
            "publish_seconds": 3600,
            "columns": {"shop.orders": {"n": "string"}},
        },
    }
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "tailrace", "pipeline", "--config", str(path)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:

        def committed() -> int:
            assert process.poll() is None, (tmp_path / "log").read_text()
            log = pipeline.tables / "changes" / "_delta_log"
            return len(pipeline.table("changes")) if log.exists() else 0

        until(lambda: committed() == 1, "the first batch", 300)
        pipeline.land([s.update("k", n=2), s.insert("l", n=1)])
        until(lambda: committed() == 3, "the second batch", 300)
        # publish_ratio is not reached
        until(lambda: waiting(port) == 2, "the end of the batch", 60)
        said = status(port)
        assert said["events"] == 3
        assert said["tables"]["shop.orders"]["lag_seconds"] > 1e6  # these events are of 2023
        assert (said["failure"], said["missing"]) == (None, {})
        assert request("127.0.0.1", port, "/readyz")[0] == 200
        _, metrics = request("127.0.0.1", port, "/metrics")
        assert 'tailrace_tables_lag_seconds{table="shop.orders"} ' in metrics
        assert "tailrace_tables_events_total 3.0" in metrics
        gone = pipeline.landing.land([s.insert("m")])
        gone.rename(tmp_path / "gone")
        pipeline.land([s.insert("n")])
        until(lambda: request("127.0.0.1", port, "/readyz")[0] == 503, "the missing segment", 60)
        assert "segment 2 is missing" in request("127.0.0.1", port, "/readyz")[1]
        (tmp_path / "gone").rename(gone)
        until(lambda: committed() == 5, "the restored segment", 300)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
    assert pipeline.current() == {"k": {"n": 2}, "l": {"n": 1}, "m": {}, "n": {}}
    text = (tmp_path / "log").read_text()
    rows = views.current(pipeline.spark, str(pipeline.tables), "shop.orders").orderBy("key")
    assert [row["_rescued"] for row in rows.collect()] == [
        *(json.dumps({"n": f'{{"$numberInt":"{n}"}}'}, separators=(",", ":")) for n in (2, 1)),
        *(None, None),
    ]
    counted = [row["rescued"] for row in pipeline.table("quality") if row["field"] == "n"]
    assert sum(counted) == 3
    assert '"event": "batch.committed"' in text
    assert all(json.loads(line)["event"] for line in text.splitlines())  # also what Spark prints
    assert "py4j" not in text


def status(port: int) -> Any:
    return json.loads(request("127.0.0.1", port, "/status")[1])


def waiting(port: int) -> Any:
    return status(port)["tables"].get("shop.orders", {}).get("events_waiting")


def test_the_status_tells_what_each_table_has_and_what_it_lacks(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the tables alone; with the lake, also what is not read yet."""
    s = Stream()
    stray = s.insert("x", "späte äpfel")
    del stray["documentKey"]
    pipeline.land([s.insert("k", n=1), s.insert("l", n=2), s.insert("a", "späte äpfel"), stray])
    pipeline.run(columns={"shop.orders": {"n": "string"}})
    pipeline.land([s.insert("m", n=3)])
    pipeline.run(publish_ratio=10, publish_at_end=False)
    pipeline.land([s.delete("k"), s.delete("l")])
    options = ["tables", "status", "--tables", str(pipeline.tables)]
    assert "values.rescued" in capsys.readouterr().out
    assert main([*options, "--lake", str(pipeline.lake), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    orders, apples = found["tables"]
    assert (apples["table"], apples["rows"], apples["events_waiting"]) == (
        "shop.sp!c3!a4te!20!c3!a4pfel",
        1,
        0,
    )
    assert (orders["rows"], orders["events_waiting"], orders["rescued"]) == (2, 1, 2)
    assert (orders["files"], orders["history"]["rows"]) == (1, 2)
    assert (orders["complete"], orders["reason"]) == (False, "start")
    assert orders["lag_seconds"] > 1e6
    assert found["changes"]["rows"] == 5
    assert apples["set_aside"] == 1  # it has no document key
    assert found["lake"]["orders"]["events_waiting"] == 2
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert "shop.orders" in shown
    assert "no: start" in shown
    assert main(["tables", "status", "--tables", str(pipeline.lake)]) == 1
    assert "there are no tables of this pipeline" in capsys.readouterr().err


def test_a_missing_segment_ends_the_command_with_1(pipeline: Pipeline) -> None:
    """The tables have everything before the segment and nothing after it; run by spark-submit."""
    s = Stream()
    pipeline.land([s.insert("k", n=1)])
    gone = pipeline.land([s.insert("l", n=1)])
    pipeline.land([s.insert("m", n=1)])
    gone.unlink()
    home = Path(next(iter(pyspark.__path__)))
    command = [
        *(str(home / "bin" / "spark-submit"), "--master", "local[2]"),
        *(f"--conf={name}={value}" for name, value in SETTINGS.items()),
        *(str(Path(next(iter(tailrace.__path__))) / "__main__.py"), "pipeline", "--once"),
        *("--lake", str(pipeline.lake), "--tables", str(pipeline.tables)),
    ]
    environment = {
        **os.environ,
        # The first Java only makes the command line of the second one.
        "JDK_JAVA_OPTIONS": " ".join(["-XX:TieredStopAtLevel=1", *class_archive.options()]),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr
    assert "seg-000000000001.parquet: is missing, and later segments are there" in done.stdout
    assert pipeline.current() == {"k": {"n": 1}}


def test_the_quality_table_counts_events_by_stage(pipeline: Pipeline) -> None:
    s = Stream()
    first = s.insert("k", n=1)
    pipeline.land([first, s.update("x", n=1), s.update("k", n=1, image=None), s.delete("k")])
    pipeline.run(history=False)
    gap = {"scope": "orders", "reason": "history lost"}
    pipeline.land([dict(first), s.replace("k", n=2), s.drop()], gap=gap)
    pipeline.run(history=False)
    rows = pipeline.table("quality")

    def of(stage: str, *names: str) -> list[tuple[Any, ...]]:
        rows_of = sorted(
            (row for row in rows if row["stage"] == stage),
            key=lambda row: (row["last_segment"], row["events"]),
        )
        return [tuple(row[name] for name in names) for row in rows_of]

    assert of("landed", "scope", "first_segment", "last_segment", "events", "gap") == [
        ("orders", 0, 0, 4, None),
        ("orders", 1, 1, 0, json.dumps(gap, separators=(",", ":"))),
        ("orders", 1, 1, 3, None),
    ]
    counts = ("inserts", "updates", "replaces", "deletes", "others")
    assert of("changes", "events", *counts, "distinct_keys", "null_documents") == [
        (4, 1, 2, 0, 1, 0, 2, 1),
        (3, 1, 0, 1, 0, 1, 1, 0),
    ]
    assert all(row["lag_seconds"] > 0 for row in rows if row["stage"] == "changes")
    assert of("current", "events", "updates_without_base", "duplicates_dropped") == [
        (4, 1, 0),
        (2, 0, 1),
    ]
    assert pipeline.run().events == 0
    assert len(pipeline.table("quality")) == len(rows)
