"""When tables are published, and the cost of a batch that is not published."""

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.pipeline import entry, files, publish, schedule, views
from tailrace.pipeline import job as module
from tailrace.pipeline.entry import run
from tailrace.pipeline.tables import DataFile
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline, run_without_news


def test_publish_at_end_publish_ratio_and_publish_seconds_say_when_tables_change(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    """Changes are published once they are enough, and a drop is at once.

    A run that publishes at its end or every batch publishes the rest. The view has unpublished
    changes.
    """
    settings = {
        "publish_at_end": False,
        "publish_ratio": 0.5,
        "publish_seconds": 3600.0,
        "history": False,
    }

    def view() -> dict[str, int]:
        rows = views.current(spark, str(pipeline.tables), "shop.orders", {"n": "long"})
        return {row.key.strip('"'): row.n for row in rows.select("key", "n").collect()}

    s = Stream()
    documents = {f"k{at}": at for at in range(4)}
    pipeline.land([s.insert(key, n=n) for key, n in documents.items()])
    assert pipeline.run(**settings).published == 1  # no tables existed before
    pipeline.land([s.insert("a", n=1), s.update("k1", n=5)])
    assert pipeline.run(**settings).published == 0
    assert pipeline.current() == {key: {"n": n} for key, n in documents.items()}
    assert view() == documents | {"a": 1, "k1": 5}
    pipeline.land([s.delete("k2")])
    assert pipeline.run(**settings).published == 1
    assert view() == {key: each["n"] for key, each in pipeline.current().items()}
    assert view() == {"k0": 0, "k1": 5, "k3": 3, "a": 1}
    pipeline.land([s.insert("f", n=1), s.drop("other")])
    pipeline.run(**settings)
    assert "f" in pipeline.current()
    pipeline.land([s.insert("g", n=1)])
    pipeline.run(**settings)
    assert "g" not in pipeline.current()
    assert pipeline.run(publish_at_end=False, history=False).published == 1
    assert "g" in pipeline.current()


def test_by_time_small_tables_are_published_and_large_ones_after_a_pause(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table counts as large here whatever its size, and then as small."""
    s = Stream()
    pipeline.land([s.insert("k", n=1), s.insert("l", n=1)])
    job = pipeline.job(publish_ratio=10, publish_seconds=1e-6, history=False)
    assert job.step()
    monkeypatch.setattr(module, "SMALL_TABLE", 0)
    monkeypatch.setattr(schedule, "PAUSE", 10**9)
    pipeline.land([s.update("k", n=2)])
    assert job.step()
    assert pipeline.current()["k"] == {"n": 1}
    monkeypatch.setattr(schedule, "PAUSE", 0)
    job.publish(everything=False)
    assert pipeline.current()["k"] == {"n": 2}
    monkeypatch.setattr(schedule, "PAUSE", 10**9)
    monkeypatch.setattr(module, "SMALL_TABLE", publish.SMALL_TABLE)
    pipeline.land([s.update("k", n=3)])
    assert job.step()
    assert pipeline.current()["k"] == {"n": 3}


def test_a_batch_that_is_not_published_reads_nothing_of_the_tables(
    pipeline: Pipeline,
) -> None:
    """So its cost does not depend on the size of the tables. Here their files are missing."""
    s = Stream()
    pipeline.land([s.insert(f"k{at}", n=at) for at in range(50)])
    pipeline.run()
    tables = [pipeline.tables / kind / "shop.orders" for kind in ("current", "history")]
    job = pipeline.job(publish_ratio=0.5, publish_seconds=3600.0)
    job.catch_up()
    job.finish()
    files = [file for table in tables for file in table.rglob("*.parquet")]
    assert len(files) >= 2
    for file in files:
        file.rename(file.with_suffix(".away"))
    pipeline.land([s.update("k1", n=-1), s.delete("k2")])
    assert job.step()
    assert (job.progress.events, job.progress.published) == (2, 0)
    for file in files:
        file.with_suffix(".away").rename(file)
    job.finish()
    assert pipeline.current()["k1"] == {"n": -1}
    assert "k2" not in pipeline.current()
    counted = [row["events"] for row in pipeline.table("quality") if row["stage"] == "current"]
    assert sorted(counted) == [2, 50]


def test_tables_that_are_larger_than_their_files_are_published_by_themselves(
    pipeline: Pipeline,
) -> None:
    """Equal documents take little room in a file. The driver accepts 16 MB here."""
    s, text = Stream(), "x" * 6_000_000
    pipeline.land([s.insert(key, name, t=text) for key in "kl" for name in ("a", "b")])
    assert pipeline.run(history=False).published == 2
    for name in ("shop.a", "shop.b"):
        assert pipeline.current(name) == {"k": {"t": text}, "l": {"t": text}}


@pytest.mark.parametrize(
    ("size", "rows", "count"),
    [(2**20, 10, 1), (2**27, 10, 4), (2**20, 2_000_000, 4), (2**27, 2_000_000, 4)],
)
def test_large_tables_are_written_as_several_files_however_well_they_compress(
    size: int, rows: int, count: int
) -> None:
    """Only one core writes a file."""
    halves = [DataFile(name, size // 2, rows // 2, {}) for name in ("one", "two")]
    assert files.count_for(halves) == count


def test_a_run_without_news_starts_no_spark(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    locations = {"lake": str(pipeline.lake), "tables": str(pipeline.tables)}

    def starts(**settings: Any) -> bool:
        """Whether a run with these settings begins to start."""
        config.write_text(json.dumps({"pipeline": {**locations, **settings}}))
        options = {"once": True, "rebuild": False, "maintain": False, "config": str(config)}
        try:
            assert run(Namespace(**options, lake=None, tables=None)) == 0
        except ZeroDivisionError:
            return True
        return False

    monkeypatch.setattr(entry, "_stop_on_signals", lambda: 1 / 0)
    s = Stream()
    pipeline.land([s.insert("k", n=1)])
    assert starts()
    pipeline.run(history=False, columns={})
    assert [starts(history=False), starts(history=True)] == [False, True]
    assert starts(history=False, columns="auto")
    pipeline.land([s.insert("l", n=1)])
    assert starts(history=False)
    pipeline.run(columns={"shop.orders": {"n": "long"}})
    assert [starts(columns={"shop.orders": {"n": "long"}}), starts()] == [False, True]
    run_without_news("--lake", locations["lake"], "--tables", locations["tables"])
    shutil.rmtree(pipeline.tables / "history" / "shop.orders")
    assert starts(columns={"shop.orders": {"n": "long"}})


def test_history_has_what_changed_while_it_was_off(pipeline: Pipeline) -> None:
    """In tables that it had before, in one that it lacked, and after a rename in between."""
    s = Stream()
    pipeline.land([s.insert(key, name, n=1) for key in "kl" for name in ("a", "b", "c")])
    pipeline.run()
    pipeline.land([s.update("k", "a", n=2), s.delete("l", "a"), s.rename("b", "moved")])
    pipeline.land([s.insert("k", "new", n=1)])
    pipeline.run(history=False)
    pipeline.run(history=False)
    pipeline.land([s.update("k", "c", n=2)])
    names = ("shop.a", "shop.b", "shop.c", "shop.moved", "shop.new")
    for rebuilt in (False, True):
        pipeline.job().rebuild() if rebuilt else pipeline.run()
        assert {name: pipeline.history(name) for name in names} == {
            "shop.a": [
                ("k", {"n": 1}, "insert", "update"),
                ("k", {"n": 2}, "update", None),
                ("l", {"n": 1}, "insert", "delete"),
            ],
            "shop.b": [(key, {"n": 1}, "insert", "rename") for key in "kl"],
            "shop.c": [
                ("k", {"n": 1}, "insert", "update"),
                ("k", {"n": 2}, "update", None),
                ("l", {"n": 1}, "insert", None),
            ],
            "shop.moved": [(key, {"n": 1}, "rename", None) for key in "kl"],
            "shop.new": [("k", {"n": 1}, "insert", None)],
        }
