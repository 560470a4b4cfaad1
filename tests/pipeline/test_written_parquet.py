"""Segments of the daemon's own writer, as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tailrace.lake.segment import Documents
from tailrace.pipeline.schemas import segment_schema
from tests.damage import landed
from tests.lake import rows, segments


@pytest.fixture(params=[True, False], ids=["vectorized", "row by row"])
def reader(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    key = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(key)
    spark.conf.set(key, str(request.param).lower())
    yield spark
    spark.conf.set(key, before)


def test_spark_reads_all_values(reader: SparkSession, tmp_path: Path) -> None:
    landed(tmp_path / "lake", events=12_000)
    files = [str(path) for path in segments(tmp_path / "lake", "orders").values()]
    frame = reader.read.schema(segment_schema(Documents.BSON)).parquet(*files)
    found = frame.withColumn("wall_time", f.unix_millis("wall_time")).orderBy("ordinal").collect()
    expected = rows(tmp_path / "lake", "orders")
    assert [row.asDict() for row in found] == expected
    assert frame.where("ordinal >= 11990 AND operation = 'delete'").count() == sum(
        row["operation"] == "delete" for row in expected[11990:]
    )
