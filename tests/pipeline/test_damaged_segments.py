"""Segments with one wrong byte: the pipeline names the file, or its values are right."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import Documents
from tailrace.pipeline import files
from tailrace.pipeline.location import Location
from tailrace.pipeline.schemas import segment_schema
from tailrace.pipeline.segments import LandedLake, read_footers
from tests.damage import damages, landed
from tests.pipeline.pipeline import Pipeline


@pytest.fixture
def quiet(spark: SparkSession) -> Any:
    """Each damage would be pages of log."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


def values(spark: SparkSession, lake: Path) -> list[Any]:
    """All that the pipeline reads of the lake: footers on the driver, rows in Spark."""
    opened = LandedLake.open(Location.of(str(lake)))
    found = list(read_footers(opened, "orders", (0, 1)))
    rows = spark.read.schema(segment_schema(Documents.BSON)).parquet(found[1].file.spark)
    with files.job_errors("nothing was committed"):
        return [[each.footer for each in found], *map(tuple, rows.collect())]


@pytest.mark.usefixtures("quiet")
def test_a_damaged_segment_is_named_or_read_right(spark: SparkSession, tmp_path: Path) -> None:
    path = landed(tmp_path / "lake")
    data, right, found = path.read_bytes(), values(spark, tmp_path / "lake"), 0
    for place, damaged in damages(data, 50, seed=4):
        path.unlink()  # Spark knows files by their times
        path.write_bytes(damaged)
        try:
            assert values(spark, tmp_path / "lake") == right, f"byte {place}"
        except SegmentUnreadable as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
            found += 1
    assert found > 30


@pytest.mark.usefixtures("quiet")
def test_a_run_on_a_damaged_segment_commits_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    path = landed(tmp_path / "damaged")
    column = parquet.read_metadata(path).row_group(0).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 0x10
    path.write_bytes(data)
    pipeline.lake = tmp_path / "damaged"
    with pytest.raises(SegmentUnreadable, match=str(path)):
        pipeline.run()
    assert not list(pipeline.tables.rglob("*.json"))
