"""Tables: the port (``port``), its two adapters (``delta``, ``iceberg``), and which one it is
(``opening``)."""

from tailrace.pipeline.tables.delta import DeltaStore
from tailrace.pipeline.tables.opening import open_store
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
    "open_store",
    "published_at",
]
