"""Tables of the contract suite, and files with rows for them. They need no Spark session."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.pipeline import files
from tailrace.pipeline.location import Location
from tailrace.pipeline.tables import DataFile, Table, TableStore, TableVersion
from tailrace.pipeline.tables.iceberg import IcebergStore

SCHEMA = T.StructType(
    [
        T.StructField("key", T.StringType()),
        T.StructField("number", T.LongType()),
        T.StructField("at", T.TimestampType()),
        T.StructField("scope", T.StringType()),
        T.StructField("done", T.BooleanType()),
    ]
)


def iceberg(directory: Path) -> TableStore:
    settings = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}
    return IcebergStore(Location.of(str(directory / "tables")), settings, "tailrace")


def written(table: Table, *keys: str, **values: Any) -> list[DataFile]:
    """Files with a row for each key."""
    row = {"number": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "scope": "a b", "done": True}
    rows = [{**row, "key": key, **values} for key in keys]
    schema = to_arrow_schema(table.schema, timezone="UTC")
    return files.write_arrow(pa.Table.from_pylist(rows, schema), table)


def keys(version: TableVersion) -> list[str]:
    return sorted(row["key"] for row in version.rows("key"))
