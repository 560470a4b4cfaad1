"""The tables as any reader of Delta sees them, compared with the source, and some of their rows.

It knows nothing of Spark or the pipeline: directories of Delta tables in, documents out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tailrace.demo.display import Display
from tailrace.demo.verification import differences

_SHOWN_FIELDS = ("status", "revision", "total")
_SHOWN_ROWS = 4
_SHOWN_VERSIONS = 5


def compare_tables(tables: Path, source: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Every difference between ``current`` and the source's raw documents, one a line.

    Type and order of fields count; so does a key that is there twice. A table without rows is as
    good as none: what was dropped keeps its table.
    """
    found: dict[str, dict[str, str | None]] = {}
    problems = []
    for name in _names(tables / "current"):
        documents: dict[str, str | None] = {}
        for row in _rows(tables / "current" / name, "document_key", "document"):
            # The text of the `_id` alone: the demo's collections are not sharded.
            key = row["document_key"].removeprefix('{"_id":').removesuffix("}")
            if key in documents:
                problems.append(f"{name} {key}: is in the table more than once")
            documents[key] = row["document"]
        found[name] = documents
    return [*problems, *differences(found, source, "the table has")]


def show_tables(display: Display, tables: Path, current: str, history: str) -> None:
    """The size of each table, the last changes of one collection, and a document's versions."""
    sizes = [
        (name, *(str(_count(tables / kind / name)) for kind in ("current", "history")))
        for name in _names(tables / "current")
    ]
    title = f"changes: {_count(tables / 'changes')} rows"
    display.table(title, ("collection", "current", "history"), sizes)

    rows = _rows(
        tables / "current" / current, "document_key", "operation", "cluster_time", "document"
    )
    rows.sort(key=lambda row: (row["cluster_time"], row["document_key"]), reverse=True)
    display.table(
        f"current/{current}",
        ("key", "last change", "at", "some of its fields"),
        [
            (_key(row), row["operation"], _time(row["cluster_time"]), _fields(row["document"]))
            for row in rows[:_SHOWN_ROWS]
        ],
    )

    versions: dict[str, list[dict[str, Any]]] = {}
    columns = ("document_key", "operation", "valid_from", "valid_to", "ended_by", "document")
    for row in _rows(tables / "history" / history, *columns, "valid_from_position"):
        versions.setdefault(_key(row), []).append(row)
    key = max(versions, key=lambda each: len(versions[each]), default="")
    rows = sorted(versions.get(key, []), key=lambda row: int(row["valid_from_position"]))
    display.table(
        f"history/{history}, one document: {key}",
        ("made by", "valid from", "valid to", "ended by", "some of its fields"),
        [
            (
                *(row["operation"], _time(row["valid_from"]), _time(row["valid_to"])),
                *(row["ended_by"] or "", _fields(row["document"])),
            )
            for row in rows[-_SHOWN_VERSIONS:]
        ],
    )


def changes(tables: Path) -> list[tuple[float, str]]:
    """When each event of the log happened, in seconds since 1970, and its operation."""
    rows = _rows(tables / "changes", "wall_time", "operation")
    return [(row["wall_time"].timestamp(), row["operation"]) for row in rows if row["wall_time"]]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _rows(table: Path, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return found


def _count(table: Path) -> int:
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def _key(row: Mapping[str, Any]) -> str:
    return _plain(json.loads(row["document_key"])["_id"])


def _time(value: datetime | None) -> str:
    return "" if value is None else f"{value:%H:%M:%S}"


def _fields(document: str | None) -> str:
    fields = json.loads(document or "{}")
    return ", ".join(f"{name}: {_plain(fields[name])}" for name in _SHOWN_FIELDS if name in fields)


def _plain(value: Any) -> str:
    """Extended JSON's ``{"$numberInt": "7"}`` as 7."""
    if not isinstance(value, dict):
        return str(value)
    if len(value) == 1 and next(iter(value)).startswith("$"):
        return str(next(iter(value.values())))
    return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
