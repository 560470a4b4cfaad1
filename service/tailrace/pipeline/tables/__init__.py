"""Tables: the port (``port``), and the one module that knows a table format (``delta``)."""

from tailrace.pipeline.tables.delta import DeltaStore
from tailrace.pipeline.tables.port import PUBLISHED, DataFile, Table, TableStore, TableVersion

__all__ = ["PUBLISHED", "DataFile", "DeltaStore", "Table", "TableStore", "TableVersion"]
