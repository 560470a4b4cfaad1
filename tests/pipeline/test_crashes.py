"""Runs that end at any moment: what is committed is applied exactly once."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import compute as pc

from tailrace.errors import PipelineRefused, TablesFenced
from tailrace.pipeline import files, log_files, table_groups
from tailrace.pipeline.tables import TableVersion
from tests.pipeline.conftest import SETTINGS
from tests.pipeline.pipeline import Pipeline
from tests.pipeline.workload import Workload

_KILLED = """
import os, signal, sys
from tailrace.cli import main
from tailrace.pipeline.tables.iceberg.version import IcebergVersion

commit, calls = IcebergVersion.commit, []

def killed(self, *arguments, **keywords):
    done = commit(self, *arguments, **keywords)
    calls.append(self)
    if len(calls) == 2:  # the log has the events, and one table
        os.kill(os.getpid(), signal.SIGKILL)
    return done

IcebergVersion.commit = killed
sys.exit(main(sys.argv[1:]))
"""


class Crash(BaseException):
    """An error that nothing in the job may catch."""


def test_a_process_that_is_killed_at_a_commit_applies_each_event_once(
    stored_iceberg: Pipeline, tmp_path: Path
) -> None:
    """SIGKILL of the whole process, which knows S3 by the variables alone.

    The next run finds one more segment. ``test_cluster.py`` does the same with Delta tables.
    """
    pipeline, workload = stored_iceberg, Workload(stored_iceberg)
    workload.land()
    config = tmp_path / "config.json"
    section = {**pipeline.section, "master": "local[2]", "spark": SETTINGS}
    config.write_text(json.dumps({"pipeline": section}))
    command = [sys.executable, "-c", _KILLED, "pipeline", "--once", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    workload.land()
    pipeline.run(batch_events=4)
    workload.check()


def test_a_run_that_ends_before_any_commit_applies_each_event_once(
    in_format: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: of the commits from that of a batch on, a run ends before the first one, the
    next run before the second one, and so on until one does all. Each run first finishes what the
    one before it left. The files of the commit that does not come are written.

    At last another writer commits while this one writes its files, and this one is refused.
    """
    pipeline, workload, write = in_format, Workload(in_format), log_files.write
    commits = Commits(workload)
    for place in itertools.count():
        workload.land()
        with monkeypatch.context() as patch, suppress(Crash):
            commits.end(patch, type(pipeline.job().log.load()), place)
            pipeline.run(parallel_collections=1)
            break
    kinds = [name.partition("/")[0] for name in commits.names]
    assert {*kinds} == {"changes", "current", "history", "quality"}
    assert kinds.index("quality") == len(kinds) - 1
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
        patch.setattr(log_files, "write", overtaken)
        pipeline.run(parallel_collections=1)
    workload.check()


class Commits:
    """The commits of a run from that of a batch on. At that one, the tables have to have what was
    in the log before."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.names: list[str] = []

    def end(self, patch: pytest.MonkeyPatch, of: type[TableVersion], place: int) -> None:
        """Ends the next run before the commit with this number."""
        self.names = []
        for method in ("commit", "set_properties", "add_columns"):
            patch.setattr(of, method, self._counted(getattr(of, method), place))

    def _counted(self, commit: Callable[..., Any], place: int) -> Callable[..., Any]:
        def ended(version: TableVersion, *arguments: Any, **keywords: Any) -> Any:
            name = version.table.name
            if not self.names and name == "changes" and keywords.get("segments"):
                self.workload.check_current(version.segment("orders") + 1)
                self.names.append(name)
            elif self.names:
                self.names.append(name)
            if len(self.names) == place + 1:
                raise Crash
            return commit(version, *arguments, **keywords)

        return ended


def test_a_batch_that_fails_leaves_nothing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a failed batch are removed, whether Spark or this process has written them."""
    Workload(pipeline).land()
    with monkeypatch.context() as patch:
        patch.setattr(pc, "min_max", lambda *_: os.stat("/nowhere"))
        with pytest.raises(PipelineRefused, match="nothing was committed"):
            pipeline.run()
    assert not list(pipeline.tables.rglob("*.parquet"))
    monkeypatch.setattr(table_groups, "TABLE_ROWS", 0)
    monkeypatch.setattr(files, "_describe", lambda *_: os.stat("/nowhere"))
    with pytest.raises(FileNotFoundError):
        pipeline.run()
    assert not list((pipeline.tables / "current").rglob("*.parquet"))
