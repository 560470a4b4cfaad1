"""The tables as any reader of Delta sees them, and the proof that they are the source.

It knows nothing of Spark or the pipeline: directories of Delta tables in, documents out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tailrace.demo.verification import differences

_SHOWN_FIELDS = ("status", "revision", "total")
_CURRENT = ("document_key", "operation", "cluster_time", "document")
_HISTORY = (
    *("document_key", "operation", "valid_from", "valid_to", "ended_by", "document"),
    "valid_from_position",
)
_SHOWN_ROWS = 4
_SHOWN_VERSIONS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a table, as text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Change:
    """When an event happened, in seconds since 1970, and which."""

    at: float
    operation: str


def compare_tables(tables: Path, source: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Every difference between ``current`` and the source's raw documents, one a line.

    Type and order of fields count; so does a key that is there twice. A table without rows is as
    good as none: what was dropped keeps its table.
    """
    found: dict[str, dict[str, str | None]] = {}
    problems = []
    for name in names(tables / "current"):
        documents: dict[str, str | None] = {}
        for row in _rows(tables / "current" / name, "document_key", "document"):
            key = _id(row["document_key"])
            if key in documents:
                problems.append(f"{name} {key}: is in the table more than once")
            documents[key] = row["document"]
        found[name] = documents
    return [*problems, *differences(found, source, "the table has")]


def sizes(tables: Path) -> Sample:
    """How many rows each table has."""
    rows = []
    for name in names(tables / "current"):
        counts = (str(_count(tables / kind / name)) for kind in ("current", "history"))
        rows.append((name, *counts))
    title = f"changes: {_count(tables / 'changes')} rows"
    return Sample(title, ("collection", "current", "history"), rows)


def sample_of_current(tables: Path, name: str) -> Sample:
    """The documents that have changed last."""
    rows = _rows(tables / "current" / name, *_CURRENT)
    rows.sort(key=lambda row: (row["cluster_time"], row["document_key"]), reverse=True)
    columns = ("key", "last change", "at", "some of its fields")
    shown = [
        (
            _shown(row["document_key"]),
            row["operation"],
            _time(row["cluster_time"]),
            _fields(row["document"]),
        )
        for row in rows[:_SHOWN_ROWS]
    ]
    return Sample(f"current/{name}", columns, shown)


def sample_of_history(tables: Path, name: str) -> Sample:
    """The versions of the document that has most."""
    versions: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(tables / "history" / name, *_HISTORY):
        versions.setdefault(_shown(row["document_key"]), []).append(row)
    key = max(versions, key=lambda each: len(versions[each]), default="")
    rows = sorted(versions.get(key, []), key=lambda row: int(row["valid_from_position"]))
    columns = ("made by", "valid from", "valid to", "ended by", "some of its fields")
    shown = [
        (
            row["operation"],
            _time(row["valid_from"]),
            _time(row["valid_to"]),
            row["ended_by"] or "",
            _fields(row["document"]),
        )
        for row in rows[-_SHOWN_VERSIONS:]
    ]
    return Sample(f"history/{name}, one document: {key}", columns, shown)


def changes(tables: Path) -> list[Change]:
    """Every event of the log that has a time."""
    rows = _rows(tables / "changes", "wall_time", "operation")
    return [
        Change(row["wall_time"].timestamp(), row["operation"]) for row in rows if row["wall_time"]
    ]


def names(directory: Path) -> list[str]:
    """The tables of one kind; those of the shop are called like their collections."""
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _rows(table: Path, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return found


def _count(table: Path) -> int:
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def _id(document_key: str) -> str:
    """The text of the ``_id`` alone: the shop is not sharded."""
    return document_key.removeprefix('{"_id":').removesuffix("}")


def _shown(document_key: str) -> str:
    return _plain(json.loads(document_key)["_id"])


def _time(value: datetime | None) -> str:
    return "" if value is None else f"{value:%H:%M:%S}"


def _fields(document: str | None) -> str:
    if document is None:
        return "unknown"
    fields = json.loads(document)
    return ", ".join(f"{name}: {_plain(fields[name])}" for name in _SHOWN_FIELDS if name in fields)


def _plain(value: Any) -> str:
    """Extended JSON's ``{"$numberInt": "7"}`` as 7."""
    if not isinstance(value, dict):
        return str(value)
    if len(value) == 1 and next(iter(value)).startswith("$"):
        return str(next(iter(value.values())))
    return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
