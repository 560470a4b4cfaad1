"""Reads the tables as any Delta reader does, compares them with the source, and shows some rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tailrace.demo.display import Display
from tailrace.demo.verification import differences

_SHOWN_ROWS = 5


def compare_tables(tables: Path, source: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Every difference between ``current`` and the source's raw documents, one per line.

    A repeated key is a difference. A dropped collection keeps its table, without rows.
    """
    held: dict[str, dict[str, str | None]] = {}
    problems = []
    for name in _names(tables / "current"):
        documents: dict[str, str | None] = {}
        for row in _rows(tables / "current" / name, "document_key", "document"):
            # Only the text of the `_id`: the demo's collections are not sharded.
            key = row["document_key"].removeprefix('{"_id":').removesuffix("}")
            if key in documents:
                problems.append(f"{name} {key}: is in the table more than once")
            documents[key] = row["document"]
        held[name] = documents
    return [*problems, *differences(held, source, "the table has")]


def show_tables(display: Display, tables: Path, current: str, history: str) -> None:
    """Shows the size of each table, one collection's last changes, and a document's versions."""
    sizes = [
        (name, *(str(_count(tables / kind / name)) for kind in ("current", "history")))
        for name in _names(tables / "current")
    ]
    title = f"changes: {_count(tables / 'changes')} rows"
    display.table(title, ("collection", "current", "history"), sizes)

    columns: tuple[str, ...] = ("document_key", "operation", "cluster_time", "document")
    rows = _rows(tables / "current" / current, *columns)
    rows.sort(key=lambda row: (row["cluster_time"], row["document_key"]))
    display.table(f"current/{current}", columns, _shown(rows, columns))

    columns = ("operation", "valid_from", "valid_to", "ended_by", "document")
    versions: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(tables / "history" / history, "document_key", "valid_from_position", *columns):
        versions.setdefault(row["document_key"], []).append(row)
    key = max(versions, key=lambda each: len(versions[each]), default="")
    rows = sorted(versions.get(key, []), key=lambda row: int(row["valid_from_position"]))
    display.table(f"history/{history}, one document: {key}", columns, _shown(rows, columns))


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _rows(table: Path, *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table(columns=[*columns]).to_pylist()
    return found


def _count(table: Path) -> int:
    return int(DeltaTable(table).to_pyarrow_dataset().count_rows())


def _shown(rows: list[dict[str, Any]], columns: Sequence[str]) -> list[list[str]]:
    """The last rows: times without the date, Extended JSON values without their type."""

    def text(value: Any) -> str:
        if isinstance(value, datetime):
            return f"{value:%H:%M:%S}"
        return re.sub(r'\{"\$\w+":"([^"]*)"\}', r"\1", value or "")

    return [[text(row[column]) for column in columns] for row in rows[-_SHOWN_ROWS:]]
