"""Lake and tables in S3: what is refused before Spark starts, and a store that fails meanwhile."""

import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tailrace.cli import main
from tailrace.errors import PipelineRefused, TablesFenced
from tailrace.pipeline import jars, table_groups
from tailrace.pipeline.follow import Follower
from tailrace.pipeline.location import Location
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.pipeline.workload import Workload
from tests.s3_proxy import Rules, S3Proxy


@pytest.mark.parametrize(
    ("tables", "environment", "message"),
    [
        ("s3://", {}, "--tables: s3://: names no bucket"),
        ("gs://b/t", {}, "--tables: no table can lie in gs://: use a directory, or s3://"),
        ("s3://nowhere/tables", {}, "s3://nowhere/tables: cannot be written: .*NoSuchBucket"),
        (
            "s3://lake/t",
            {"AWS_SECRET_ACCESS_KEY": "wrong"},
            "s3://lake/t: cannot be written: .*SignatureDoesNotMatch",
        ),
        ("s3://lake/t", {"AWS_ACCESS_KEY_ID": "nobody"}, "s3://lake/t: cannot be written: "),
        ("s3://lake/t", {"conditional": ""}, "s3://lake/t: the store ignores 'If-None-Match: "),
        ("s3://lake/t", {jars.VARIABLE: "/nowhere"}, "/nowhere: Spark needs 36 jars for s3://"),
    ],
    ids=[
        *("no bucket named", "no such storage", "no bucket there", "wrong secret", "unknown key"),
        *("no conditional writes", "no jars"),
    ],
)
def test_what_spark_could_not_do_is_refused_in_a_line_before_it_starts(
    tables: str,
    environment: dict[str, str],
    message: str,
    s3: S3Proxy,
    java: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake = Pipeline(None, tmp_path).lake  # type: ignore[arg-type]
    s3.follow(Rules(conditional="conditional" not in environment))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code = main(["pipeline", "--once", "--lake", str(lake), "--tables", tables])
    printed = capsys.readouterr().err
    assert code == (2 if printed.startswith("tailrace: --tables") else 1)
    assert re.search(message, printed)
    assert printed.count("\n") == 1
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize(
    ("maven", "message"),
    [
        ("", "the jars are fetched by Maven, and there is no mvn: apt-get install maven"),
        ("echo '[ERROR] no route'; exit 1", "Maven could not fetch .*hadoop-aws.*: .ERROR. no rou"),
        (
            'jars="${4#*=}"; /bin/mkdir "$jars"; echo else > "$jars/hadoop-aws-3.5.0.jar"',
            "org.apache.hadoop:hadoop-aws:3.5.0: its SHA-256 is .*: it was not used",
        ),
    ],
    ids=["no Maven", "no network", "another file"],
)
def test_jars_that_cannot_be_fetched_are_named_in_a_line(
    maven: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if maven:
        (tmp_path / "mvn").write_text(f"#!/bin/sh\n{maven}\n")
        (tmp_path / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path / "jars"))
    assert main(["pipeline", "--fetch-jars"]) == 1
    printed = capsys.readouterr().err
    assert re.search(message, printed)
    assert printed.count("\n") == 1
    assert not list(tmp_path.rglob("*.jar"))


def test_a_store_that_asks_for_fewer_requests_is_waited_for(stored: Pipeline, s3: S3Proxy) -> None:
    """Every ninth request is refused (503 SlowDown), of each client."""
    work = Workload(stored)
    work.land()
    with s3.failing(status=503, code="SlowDown", every=9):
        stored.run()
    work.check()


@pytest.mark.parametrize(("status", "code"), [(400, "ExpiredToken"), (507, "InsufficientStorage")])
def test_a_store_that_refuses_in_the_middle_of_a_run_ends_it_in_a_line(
    status: int, code: str, stored: Pipeline, s3: S3Proxy
) -> None:
    """The next run finds what was committed, and one more segment."""
    work = Workload(stored)
    work.land()
    rule = s3.failing(status=status, code=code, methods=["PUT", "POST"], skip=4)
    with rule, pytest.raises((PipelineRefused, TablesFenced)) as error:
        stored.run()
    assert not isinstance(error.value, TablesFenced)
    assert "\n" not in str(error.value)
    assert "s3://lake/" in str(error.value)
    work.land()
    stored.run()
    work.check()


def test_a_listing_that_lags_loses_nothing(
    stored: Pipeline, s3: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that it does not show is waited for, and a batch whose files it lacks fails."""
    monkeypatch.setattr(table_groups, "TABLE_ROWS", 0)  # Spark's files are found by a listing
    for key in "abc":
        stored.land([Stream().insert(key)])
    with s3.failing(hidden="/seg-000000000001."):
        assert stored.run(history=False).missing == {"orders": 1}
    assert stored.current().keys() == {"a"}
    with s3.failing(hidden="/part-"), pytest.raises(PipelineRefused, match="Spark wrote 3 rows"):
        stored.run(history=False)
    stored.run(history=False)
    assert stored.current().keys() == {"a", "b", "c"}


def test_files_that_are_missed_after_spark_has_written_them_are_not_forgotten(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, below = Workload(pipeline), Location.below
    monkeypatch.setattr(table_groups, "TABLE_ROWS", 0)
    work.land()
    monkeypatch.setattr(Location, "below", lambda place: below(place)[1:])
    with pytest.raises(PipelineRefused, match=r"Spark wrote \d+ rows, and 0 are in its files"):
        pipeline.run()
    monkeypatch.undo()
    pipeline.run()
    work.check()


class Steps(threading.Event):
    """A stop for which nobody waits: each pause is noted, and the next step is taken instead."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.pauses: list[float | None] = []
        self._steps = iter(steps)

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        next(self._steps)()
        return self.is_set()


def test_a_pipeline_that_keeps_running_tries_a_failed_batch_again(
    stored: Pipeline, s3: S3Proxy
) -> None:
    """The pauses grow while the store refuses, and the work goes on once it does not."""
    expired = Rules(400, "ExpiredToken", methods=("PUT", "POST"))

    def refuse() -> None:
        stored.land([Stream().insert("k")])
        s3.follow(expired)

    stop = Steps(refuse, lambda: None, lambda: s3.follow(Rules()), lambda: stop.set())
    follower = Follower(stored.job(interval_seconds=3, history=False))
    with capture_logs() as lines:
        follower.run(stop, once=False)
    failed = [line for line in lines if line["event"] == "batch.failed"]
    assert [line["failures"] for line in failed] == [1, 2]
    assert all("s3://lake/" in line["reason"] for line in failed)
    assert stop.pauses == [3, 6, 12, 3]
    assert (follower.failures, follower.failure) == (2, "")
    assert stored.current().keys() == {"k"}
