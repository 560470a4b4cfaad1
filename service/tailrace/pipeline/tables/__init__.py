"""Tables: the port (``port``), and the one package that knows a table format (``delta``)."""

from tailrace.pipeline.tables.delta import DeltaStore
from tailrace.pipeline.tables.port import (
    PUBLISHED,
    DataFile,
    RowSearch,
    Table,
    TableStore,
    TableVersion,
    published_at,
)

__all__ = [
    "PUBLISHED",
    "DataFile",
    "DeltaStore",
    "RowSearch",
    "Table",
    "TableStore",
    "TableVersion",
    "published_at",
]
