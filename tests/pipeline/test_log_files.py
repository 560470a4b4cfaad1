"""Files of the log that Spark's workers write: what no commit names is not in the table."""

import pytest

from tailrace.pipeline import log_files
from tailrace.pipeline.maintenance import vacuum
from tailrace.pipeline.segments import read_footers
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline


def test_files_of_a_job_that_died_before_its_commit_are_removed(
    either: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the table once: those of the files that the next run has committed."""
    monkeypatch.setattr(log_files, "ROWS", 0)
    s = Stream()
    either.land([s.insert("k", "a"), s.insert("k", "b"), s.drop("a")])
    either.land([s.insert("l", "b")])
    job = either.job()
    died = log_files.write(either.spark, [*read_footers(job.lake, "orders", (0, 1))], job.log)
    assert sum(each.rows for each in died) == 4
    either.run()
    assert sorted(row["ordinal"] for row in either.table("changes")) == [0, 1, 2, 3]
    vacuum(job.log, 0)
    left = {path for path, _ in job.log.location.below() if path.endswith(".parquet")}
    assert left == {each.path for each in job.log.load().files}
    assert not left & {each.path for each in died}


def test_a_task_with_many_tables_and_much_data_writes_each_event_once(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More tables than a process opens files for, and more rows than it keeps in memory."""
    for name, limit in ("CHUNK", 3), ("PART_BYTES", 1):
        monkeypatch.setattr(log_files, name, limit)
    monkeypatch.setattr("tailrace.pipeline.partition_files.OPEN_FILES", 2)
    s = Stream()
    for part in range(2):
        pipeline.land([s.insert(f"k{part}{at}", f"c{at % 3}") for at in range(9)])
    pipeline.run(history=False)
    assert sorted(row["ordinal"] for row in pipeline.table("changes")) == list(range(18))
    for at in range(3):
        found = pipeline.current(f"shop.c{at}")
        assert found.keys() == {f"k{part}{at + 3 * n}" for part in range(2) for n in range(3)}
    assert len(pipeline.job().log.load().files) > 3
