"""Runs that end at any moment: what is committed is applied exactly once."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from pyarrow import compute as pc
from pyiceberg.catalog.sql import SqlCatalog

from tailrace.errors import PipelineRefused, TablesFenced
from tailrace.pipeline import files, small_batch
from tailrace.pipeline.tables.delta import DeltaVersion
from tests.pipeline.pipeline import Pipeline
from tests.pipeline.workload import Workload

_KILLED = """
import os, signal, sys
from tailrace.cli import main
from tailrace.pipeline.tables.delta import DeltaVersion

commit, calls = DeltaVersion.commit, []

def killed(self, *arguments, **keywords):
    done = commit(self, *arguments, **keywords)
    calls.append(self)
    if len(calls) == 2:  # the log has the events, and one table
        os.kill(os.getpid(), signal.SIGKILL)
    return done

DeltaVersion.commit = killed
sys.exit(main(sys.argv[1:]))
"""


class Crash(BaseException):
    """An error that nothing in the job may catch."""


def test_a_process_that_is_killed_at_a_commit_applies_each_event_once(stored: Pipeline) -> None:
    """SIGKILL of the whole process, which knows S3 by the variables alone.

    The next run finds one more segment.
    """
    pipeline, workload = stored, Workload(stored)
    workload.land()
    command = [sys.executable, "-c", _KILLED, "pipeline", "--once"]
    command += ["--lake", str(pipeline.lake), "--tables", str(pipeline.tables)]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    workload.land()
    pipeline.run(batch_events=4)
    workload.check()


@pytest.mark.parametrize(
    ("where", "places"),
    [("pipeline", (0, 3)), ("stored", range(5)), ("iceberg", (0, 2, 5))],
    ids=["directory", "bucket", "iceberg"],
)
def test_a_run_that_ends_at_any_commit_applies_each_event_once(
    where: str,
    places: Sequence[int],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this process: before the first commit of a run, and after each commit; in a bucket, too.

    At last another writer commits while this one writes its files, and this one is refused.
    """
    workload = Workload(request.getfixturevalue(where))
    pipeline, write = workload.pipeline, files.write_arrow
    # Of the catalog each request is a commit, also those of properties.
    of, name = (SqlCatalog, "commit_table") if where == "iceberg" else (DeltaVersion, "commit")
    commit = getattr(of, name)
    ends = 0
    for at in places:
        workload.land()
        calls = [0]

        def ended(
            self: Any, *arguments: Any, at: int = at, calls: list[int] = calls, **keywords: Any
        ) -> Any:
            if at == 0:
                raise Crash
            done = commit(self, *arguments, **keywords)
            calls[0] += 1
            if calls[0] == at:
                raise Crash
            return done

        try:
            with monkeypatch.context() as patch:
                patch.setattr(of, name, ended)
                pipeline.run(batch_events=4 if at % 3 else 2_000_000, parallel_collections=1)
        except Crash:
            ends += 1
    assert ends >= min(4, len(places))
    workload.land()
    waiting = [True]

    def overtaken(*arguments: Any) -> Any:
        written = write(*arguments)
        if waiting:
            waiting.clear()
            workload.land()
            pipeline.run()
        return written

    refused = pytest.raises(TablesFenced, match="another pipeline writes this table")
    with monkeypatch.context() as patch, refused:
        patch.setattr(files, "write_arrow", overtaken)
        pipeline.run(parallel_collections=1)
    workload.check()


def test_a_batch_that_fails_leaves_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a failed batch are removed, whether Spark or this process has written them."""
    Workload(pipeline).land()
    monkeypatch.setattr(pc, "min_max", lambda *_: os.stat("/nowhere"))
    with pytest.raises(PipelineRefused, match="nothing was committed"):
        pipeline.run()
    assert not list(pipeline.tables.rglob("*.parquet"))
    monkeypatch.setattr(small_batch, "ROWS", 0)
    monkeypatch.setattr(files, "_describe", lambda *_: os.stat("/nowhere"))
    with pytest.raises(FileNotFoundError):
        pipeline.run()
    assert not list(pipeline.tables.rglob("*.parquet"))
