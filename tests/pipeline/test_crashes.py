"""Runs that end at any moment: what is committed is applied exactly once."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tailrace.errors import TablesFenced
from tailrace.pipeline import files
from tailrace.pipeline.tables.delta import DeltaVersion
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

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


class Workload:
    """Events of two collections, a few at a time, with a rename."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.stream = Stream()
        self.number = 0

    def land(self) -> None:
        s, n = self.stream, self.number
        self.number += 1
        self.pipeline.land(
            [
                s.insert(f"k{n}", "a", n=n),
                s.update("k0", "a", **{f"f{n}": n}),
                s.delete(f"k{n - 1}", "a") if n > 1 else s.insert("z", "a"),
                *([s.rename("a", "b"), s.insert("k0", "a")] if n == 2 else []),
            ]
        )

    def check(self) -> None:
        """Compares the tables with those made from the same segments in one run."""
        pipeline = self.pipeline
        names = sorted(path.name for path in (pipeline.tables / "current").iterdir())
        made = [(pipeline.current(name), pipeline.history(name)) for name in names]
        log = [(row["scope"], row["ordinal"]) for row in pipeline.table("changes")]
        assert sorted(log) == [("orders", at) for at in range(len(log))]
        assert len(log) == pipeline.landing.last["orders"][1] + 1
        pipeline.tables = pipeline.tables.with_name("fresh")
        pipeline.run()
        assert names == sorted(path.name for path in (pipeline.tables / "current").iterdir())
        assert made == [(pipeline.current(name), pipeline.history(name)) for name in names]


@pytest.fixture
def workload(pipeline: Pipeline) -> Workload:
    return Workload(pipeline)


def test_a_process_that_is_killed_at_a_commit_applies_each_event_once(workload: Workload) -> None:
    """SIGKILL of the whole process; the next run finds one more segment."""
    pipeline = workload.pipeline
    workload.land()
    command = [sys.executable, "-c", _KILLED, "pipeline", "--once"]
    command += ["--lake", str(pipeline.lake), "--tables", str(pipeline.tables)]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    workload.land()
    pipeline.run(batch_events=4)
    workload.check()


def test_a_run_that_ends_at_any_commit_applies_each_event_once(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: before the first commit of a run, and after each commit.

    At last another writer commits while this one writes its files, and this one is refused.
    """
    pipeline, commit, write = workload.pipeline, DeltaVersion.commit, files.write
    ends = 0
    for at in range(5):
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

        monkeypatch.setattr(DeltaVersion, "commit", ended)
        try:
            pipeline.run(batch_events=4 if at % 3 else 2_000_000, parallel_collections=1)
        except Crash:
            ends += 1
    assert ends >= 4
    monkeypatch.undo()
    workload.land()
    waiting = [True]

    def overtaken(*arguments: Any) -> Any:
        written = write(*arguments)
        if waiting:
            waiting.clear()
            workload.land()
            pipeline.run()
        return written

    monkeypatch.setattr(files, "write", overtaken)
    with pytest.raises(TablesFenced, match="another pipeline writes this table"):
        pipeline.run()
    monkeypatch.undo()
    workload.check()


def test_a_batch_that_fails_leaves_nothing(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a failed batch are removed."""
    workload.land()
    monkeypatch.setattr(files, "_describe", lambda *_: os.stat("/nowhere"))
    with pytest.raises(FileNotFoundError):
        workload.pipeline.run()
    assert not list(workload.pipeline.tables.rglob("*.parquet"))
