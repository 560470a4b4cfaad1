"""A segment: other readers find the columns that the format defines, and their values."""

from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.lake.segment import COLUMNS, Documents
from tailrace.lake.segment_metadata import schema
from tests.damage import landed
from tests.lake import plain


@pytest.mark.parametrize("documents", [Documents.BSON, Documents.CANONICAL])
def test_columns_have_the_types_of_the_format(tmp_path: Path, documents: Documents) -> None:
    path = landed(tmp_path / "lake", documents=documents)
    found = pq.read_schema(path)
    assert found.names == list(COLUMNS)
    assert found == schema(documents)
    assert found.field("wall_time").type == pa.timestamp("ms", "UTC")
    assert found.field("full_document").type == (
        pa.binary() if documents is Documents.BSON else pa.string()
    )
    assert {field.name for field in found if not field.nullable} == {
        "scope", "segment", "ordinal", "token", "operation",
    }  # fmt: skip


def test_duckdb_and_polars_read_the_same_as_pyarrow(tmp_path: Path) -> None:
    """Over several row groups, some of which the statistics rule out."""
    path = landed(tmp_path / "lake", events=12_000)
    assert pq.read_metadata(path).num_row_groups > 1
    right = plain(pq.ParquetFile(path, page_checksum_verification=True).read())
    assert len(right) == 12_000
    number = polars.col("wall_time").cast(polars.Int64)
    assert polars.read_parquet(path).with_columns(number).to_dicts() == right
    columns = ", ".join(COLUMNS).replace("wall_time", "epoch_ms(wall_time)")
    found = duckdb.sql(f"SELECT {columns} FROM '{path}' WHERE ordinal >= 9000").fetchall()
    assert found == [tuple(row.values()) for row in right[9000:]]


@pytest.mark.parametrize("name", ["token", "scope", "ordinal"])
def test_columns_that_readers_compare_have_statistics(tmp_path: Path, name: str) -> None:
    """Documents and tokens have none: the statistics would be as large as the values."""
    metadata = pq.read_metadata(landed(tmp_path / "lake"))
    column = metadata.row_group(0).column(list(COLUMNS).index(name))
    assert column.is_stats_set == (name == "ordinal")
    assert (column.dictionary_page_offset is not None) == (name == "scope")
    assert column.compression == "ZSTD"
