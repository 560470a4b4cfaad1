"""Compaction, vacuum and retention: fewer files, the same rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.pipeline import maintenance
from tailrace.pipeline.changes import changes_table
from tailrace.pipeline.location import Location
from tailrace.pipeline.maintenance import compact, forget_segments, maintain, vacuum
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


@pytest.fixture
def landed(pipeline: Pipeline) -> Pipeline:
    """A log of three batches."""
    s = Stream()
    for at in range(3):
        pipeline.land([s.insert(f"k{at}", n=at), s.update("k0", m=at)])
        pipeline.run(history=False)
    return pipeline


def test_a_table_is_compacted_beside_a_writer(
    landed: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is committed between reading the small files and committing the large one."""
    monkeypatch.setattr(maintenance, "_MANY", 2)
    job = landed.job(history=False)
    before = len(DeltaTable(landed.tables / "changes").file_uris())
    write = maintenance.files.write

    def overtaken(*arguments: object) -> object:
        written = write(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        monkeypatch.setattr(maintenance, "_MANY", 2)
        landed.land([Stream(seconds=1_800_000_000).insert("late")])
        landed.run(history=False)
        return written

    monkeypatch.setattr(maintenance.files, "write", overtaken)
    assert compact(job.spark, job.log) == before
    assert len(DeltaTable(landed.tables / "changes").file_uris()) == 2
    assert sorted(row["ordinal"] for row in landed.table("changes")) == list(range(7))
    current = landed.current()
    landed.land([Stream(seconds=1_900_000_000).update("late", n=1)])
    landed.run(history=False)
    assert landed.current() == current | {"late": {"n": 1}}


def test_vacuum_removes_what_no_version_needs(landed: Pipeline) -> None:
    table = changes_table(Location.of(str(landed.tables)), landed.landing.identity)
    used = set(DeltaTable(landed.tables / "changes").file_uris())
    kept = Path(sorted(used)[0])
    orphan = landed.tables / "changes" / ("0" * 32) / "part-0.parquet"
    unfinished = landed.tables / "changes" / ("1" * 32) / "_temporary" / "0" / "part-0.parquet"
    for path in (orphan, unfinished):
        path.parent.mkdir(parents=True)
        path.write_bytes(kept.read_bytes())
    assert vacuum(table, 168) == 0
    assert orphan.exists()
    assert unfinished.exists()
    assert vacuum(table, 0) == 2
    assert not orphan.exists()
    assert not unfinished.parents[2].exists()
    assert set(DeltaTable(landed.tables / "changes").file_uris()) == used
    assert len(landed.table("changes")) == 6


def test_segments_are_forgotten_once_they_are_in_the_tables(landed: Pipeline) -> None:
    s = Stream(seconds=1_800_000_000)
    directory = landed.lake / "orders"
    job = landed.job()
    assert forget_segments(job.lake, job.tables, 1.0) == 0
    for path in directory.iterdir():
        os.utime(path, (0, 0))
    newest = landed.land([s.insert("not yet in the tables")])
    os.utime(newest, (0, 0))
    landed.land([])
    done = maintain(job.spark, job.lake, job.tables, segment_retention_hours=1.0)
    assert done.segments == 3
    assert sorted(path.name for path in directory.iterdir()) == [
        "seg-000000000003.parquet",
        "seg-000000000004.parquet",
    ]
    landed.run(history=False)
    assert len(landed.table("changes")) == 7
    assert maintain(job.spark, job.lake, job.tables, segment_retention_hours=1.0).segments == 1
    assert [path.name for path in directory.iterdir()] == ["seg-000000000004.parquet"]
    assert landed.run().events == 0
