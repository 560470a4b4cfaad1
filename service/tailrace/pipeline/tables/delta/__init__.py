"""Delta tables: reads what is committed, and commits the files that Spark wrote.

``store`` opens tables, ``version`` is one version of a table, ``actions`` is what its log holds,
and ``failures`` is what deltalake's errors mean. No other package imports deltalake.
"""

from tailrace.pipeline.tables.delta.store import DeltaStore
from tailrace.pipeline.tables.delta.version import DeltaVersion

__all__ = ["DeltaStore", "DeltaVersion"]
