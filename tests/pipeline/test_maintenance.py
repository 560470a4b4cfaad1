"""Compaction, vacuum and retention: fewer files, the same rows, beside writers and crashes."""

import os
import signal
import subprocess
import sys
import time

import pytest
from deltalake import DeltaTable

from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import TablesFenced
from tailrace.pipeline import maintenance
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import CURRENT_STATE
from tailrace.pipeline.maintenance import compact, maintain, remove_segments, vacuum
from tailrace.pipeline.tables import DeltaStore
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline

APPLES = "späte äpfel"
TABLE = "shop.sp!c3!a4te!20!c3!a4pfel"

_COMPACT = """
import sys
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.location import Location
from tailrace.pipeline.maintenance import compact
from tailrace.pipeline.tables import DeltaStore
compact(changes_table(DeltaStore(Location.of(sys.argv[1])), sys.argv[2]).load(), many=2)
"""


@pytest.fixture
def landed(pipeline: Pipeline) -> Pipeline:
    """A log of three batches, from a collection whose name is escaped in paths."""
    s = Stream()
    for at in range(3):
        pipeline.land([s.insert(f"k{at}", APPLES, n=at), s.update("k0", APPLES, m=at)])
    pipeline.run(history=False, batch_events=1, publish_ratio=10)
    return pipeline


def test_compaction_beside_a_writer_keeps_every_row(landed: Pipeline) -> None:
    """A batch is committed after the compaction has begun.

    Tables are then published from the compaction's files, and rebuilt from them.
    """
    began = landed.job().log.load()
    s = Stream(seconds=1_800_000_000)
    landed.land([s.insert("late", APPLES), s.update("k0", APPLES, late=1)])
    landed.run(history=False)
    assert compact(began, many=2) == 4
    compacted = landed.job().log.load()
    assert [each.rows for each in compacted.files] == [8]
    assert {each.low["image"] for each in compacted.files} == {"absent"}
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(8))
    expected = {"k0": {"n": 0, "m": 2, "late": 1}, "k1": {"n": 1}, "k2": {"n": 2}, "late": {}}
    landed.run()  # creates the first history from the log
    assert len(landed.history(TABLE)) == 8
    landed.job().rebuild()
    assert landed.current(TABLE) == expected
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(8))


def test_the_second_of_a_writer_and_a_compaction_is_refused(landed: Pipeline) -> None:
    """Both want to remove the same files: each row of the log stays once."""
    store = DeltaStore(Location.of(str(landed.tables)))
    table = CURRENT_STATE.table(store, landed.landing.identity, TABLE)
    began = table.load()
    landed.land([Stream(seconds=1_800_000_000).update("k0", APPLES, m=9)])
    landed.run(history=False)
    before = landed.current(TABLE)
    assert compact(began, many=1) == 0
    assert landed.current(TABLE) == before

    log = landed.job().log
    began = log.load()
    assert compact(log.load(), many=2) == 4
    with pytest.raises(TablesFenced, match="another pipeline writes this table"):
        began.commit(removes=began.files)
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(7))


def test_files_of_a_killed_compaction_are_removed_after_vacuum_hours(landed: Pipeline) -> None:
    """SIGKILL of a compaction as soon as its file exists changes nothing, and the next one works.

    Vacuum removes files that no version needs, and the files of killed runs.
    """
    log, table = landed.tables / "changes", landed.job().log
    files = len(list(log.rglob("*.parquet*")))
    process = subprocess.Popen(
        [sys.executable, "-c", _COMPACT, str(landed.tables), landed.landing.identity]
    )
    while len(list(log.rglob("*.parquet*"))) == files and process.poll() is None:
        time.sleep(0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(6))

    unfinished = log / ("1" * 32) / "_temporary" / "0" / "part-0.parquet"
    orphan = log / ("0" * 32) / "part-0.parquet"
    staged = log / "part-0.parquet#1"
    for path in (orphan, unfinished, staged):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")
    assert vacuum(table, 168) == 0
    assert orphan.exists()
    assert unfinished.exists()
    compact(table.load(), many=2)
    vacuum(table, 0)
    assert not orphan.exists()
    assert not unfinished.parents[2].exists()
    assert len(list(log.rglob("*.parquet*"))) == len(DeltaTable(log).file_uris()) == 1
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(6))


def test_segments_in_the_tables_are_removed_after_segment_retention_hours(landed: Pipeline) -> None:
    s = Stream(seconds=1_800_000_000)
    directory = landed.lake / "orders"
    job = landed.job(segment_retention_hours=1.0)
    assert remove_segments(job.lake, job.tables, 1.0) == 0
    for path in directory.iterdir():
        os.utime(path, (0, 0))
    newest = landed.land([s.insert("not yet in the tables")])
    os.utime(newest, (0, 0))
    landed.land([])
    done = maintain(job.lake, job.tables, job.settings)
    assert done["removed_segments"] == 3
    assert sorted(path.name for path in directory.iterdir()) == [
        "seg-000000000003.parquet",
        "seg-000000000004.parquet",
    ]
    landed.run(history=False)
    assert len(landed.table("changes")) == 7
    assert maintain(job.lake, job.tables, job.settings)["removed_segments"] == 1
    assert [path.name for path in directory.iterdir()] == ["seg-000000000004.parquet"]
    assert landed.run().events == 0


def test_a_bucket_is_compacted_and_rid_of_old_files_and_segments(stored: Pipeline) -> None:
    s = Stream()
    for at in range(3):
        stored.land([s.insert(f"k{at}", APPLES, n=at)])
    stored.run(history=False, batch_events=1, publish_ratio=10)
    job, log, files = stored.job(), stored.job().log, stored.job().log.location
    orphan = files / ("0" * 32) / "part-0.parquet"
    with orphan.files.open_output_stream(orphan.path) as stream:
        stream.write(b"PAR1")
    assert compact(log.load(), many=2) == 3
    vacuum(log, 0)
    left = [path for path, _ in files.below() if path.endswith(".parquet")]
    assert left == [each.path for each in log.load().files]
    assert len(left) == 1
    assert remove_segments(job.lake, job.tables, 0) == 2
    assert job.lake.numbers("orders") == [2]
    assert sorted(row["ordinal"] for row in stored.table("changes")) == [0, 1, 2]
    assert stored.current(TABLE) == {f"k{at}": {"n": at} for at in range(3)}


def test_the_log_of_a_table_with_many_commits_is_shortened(
    landed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits older than an hour are removed, and the table stays as it is."""
    log, rows = landed.tables / "changes" / "_delta_log", landed.table("changes")
    commits = sorted(log.glob("*.json"))
    maintain(landed.job().lake, landed.job().tables, PipelineSettings())
    assert sorted(log.glob("*.json")) == commits
    for commit in commits:
        os.utime(commit, (time.time() - 7200,) * 2)
    monkeypatch.setattr(maintenance, "_COMMITS", 2)
    for _ in range(2):
        maintain(landed.job().lake, landed.job().tables, PipelineSettings())
    assert len(list(log.glob("*.json"))) < len(commits)
    assert landed.table("changes") == rows
    landed.run()
