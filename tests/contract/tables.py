"""Tables of the contract suite, and files with rows for them. They need no Spark session."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tailrace.pipeline import files
from tailrace.pipeline.location import Location
from tailrace.pipeline.table_schema import StoredType, TableField, TableSchema
from tailrace.pipeline.tables import DataFile, Table, TableStore, TableVersion
from tailrace.pipeline.tables.iceberg import IcebergStore

SCHEMA = TableSchema.of(
    [
        TableField("key", StoredType.STRING),
        TableField("number", StoredType.LONG),
        TableField("at", StoredType.TIMESTAMP),
        TableField("scope", StoredType.STRING),
        TableField("done", StoredType.BOOLEAN),
    ]
)


def iceberg(directory: Path) -> TableStore:
    settings = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db"}
    return IcebergStore(Location.of(str(directory / "tables")), settings, "tailrace")


def written(table: Table, *keys: str, **values: Any) -> list[DataFile]:
    """Files with a row for each key."""
    row = {"number": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "scope": "a b", "done": True}
    rows = [{**row, "key": key, **values} for key in keys]
    return files.write_arrow(pa.Table.from_pylist(rows, table.schema.arrow()), table)


def keys(version: TableVersion) -> list[str]:
    return sorted(row["key"] for row in version.rows("key"))
