"""Files of the daemon's own writer, as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tailrace.lake.parquet.column import ColumnKind
from tests.unit.lake.pages import COLUMNS, some_pages, together, written


@pytest.fixture(params=[True, False], ids=["vectorized", "row by row"])
def reader(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    key = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(key)
    spark.conf.set(key, str(request.param).lower())
    yield spark
    spark.conf.set(key, before)


def file(reader: SparkSession, directory: Path, data: bytes) -> DataFrame:
    path = directory / "file.parquet"
    path.write_bytes(data)
    return reader.read.parquet(str(path))


def test_all_values_come_back(reader: SparkSession, tmp_path: Path) -> None:
    pages = some_pages()
    values = together(*pages)
    read = file(reader, tmp_path, written(COLUMNS, *pages, row_group_bytes=100_000))
    plain = read.select(
        *(
            f.unix_millis(column.name).alias(column.name)
            if column.kind is ColumnKind.MILLISECONDS
            else f.encode(column.name, "utf-8").alias(column.name)
            if column.kind is ColumnKind.STRING
            else f.col(column.name)
            for column in COLUMNS
        )
    )
    rows = plain.collect()
    assert len(rows) == len(values[COLUMNS[0].name])
    for column in COLUMNS:
        found = [None if row[column.name] is None else row[column.name] for row in rows]
        assert found == values[column.name]


def test_row_groups_that_statistics_and_dictionaries_rule_out(
    reader: SparkSession, tmp_path: Path
) -> None:
    pages = some_pages()
    values = together(*pages)
    read = file(reader, tmp_path, written(COLUMNS, *pages, row_group_bytes=100_000))
    for number in (0, 9, 4999, 5000):
        for name in ("int64_true_true", "int64_false_false"):
            expected = sum(value == number for value in values[name])
            assert read.where(f.col(name) == number).count() == expected
    for word in ("", "w0", "w7w7", "w4999", "x"):
        for name in ("string_true_true", "string_false_true", "string_false_false"):
            expected = sum(value == word.encode() for value in values[name])
            assert read.where(f.col(name) == word).count() == expected
    moment = datetime.fromtimestamp(4.9, UTC)
    expected = sum(value > 4900 for value in values["milliseconds_true_true"])
    assert read.where(f.col("milliseconds_true_true") > moment).count() == expected
    nulls = sum(value is None for value in values["string_false_true"])
    assert read.where("string_false_true IS NULL").count() == nulls


def test_a_file_without_rows(reader: SparkSession, tmp_path: Path) -> None:
    read = file(reader, tmp_path, written(COLUMNS))
    assert read.columns == [column.name for column in COLUMNS]
    assert read.collect() == []
