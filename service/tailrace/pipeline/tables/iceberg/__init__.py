"""Iceberg tables: reads what is committed, and commits the files that Spark wrote.

``store`` opens the tables of a catalog (``rest`` is the client of one by HTTP), ``version`` is one
version of a table, ``commits`` and ``snapshots`` make the next one, ``data_files`` and ``schemas``
are what its metadata names, ``maintenance`` keeps it small, and ``failures`` is what errors of a
catalog mean. No other package imports pyiceberg.
"""

from tailrace.pipeline.tables.iceberg.store import IcebergStore

__all__ = ["IcebergStore"]
