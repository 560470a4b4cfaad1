"""What stands in the log of a Delta table: files with their bounds, a schema, and whose it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, transaction

from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables.json_text import json_text
from tailrace.pipeline.tables.port import DataFile

_NAME = "tailrace:"
_BOUNDS = ("min.", "max.")


def schema_of(delta: DeltaTable) -> TableSchema:
    return TableSchema.of_json(json.loads(delta.schema().to_json()))


def name_of(lake: str) -> str:
    """The name of a table that belongs to a lake."""
    return _NAME + lake


def lake_of(delta: DeltaTable) -> str | None:
    name = delta.metadata().name or ""
    return name.removeprefix(_NAME) if name.startswith(_NAME) else None


def add_action(file: DataFile, now: int) -> transaction.AddAction:
    bounds: dict[str, Any] = {}
    if file.low or file.high:
        bounds = {"minValues": dict(file.low), "maxValues": dict(file.high)}
        bounds["nullCount"] = dict(file.nulls)
    # Without escapes: deltalake 1.6.6 reads those of characters beyond 16 bits wrong.
    statistics = json_text({"numRecords": file.rows, **bounds}, ensure_ascii=False)
    return transaction.AddAction(file.path, file.size, file.partition, now, True, statistics)


def data_file(row: Mapping[str, Any]) -> DataFile:
    """``row``: an action whose statistics are columns of their own, such as ``min.segment``."""
    low, high = ({k: v for k, v in _below(row, name).items() if v is not None} for name in _BOUNDS)
    partition = _below(row, "partition.")
    return DataFile(
        path=unquote(row["path"]),  # percent-encoded in Delta's log, but not in actions
        size=row["size_bytes"],
        rows=row["num_records"],
        partition={k: str(v).lower() if isinstance(v, bool) else v for k, v in partition.items()},
        low=low,
        high=high,
    )


def _below(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}
