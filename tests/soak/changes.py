"""Whether every change came: the events of a file or a lake, read as they come and then removed.

Every update of a document adds 1 to its field ``n``. So an event whose ``n`` is not the next one
tells that changes before it are lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bson
import pyarrow.parquet as pq

from tests.lake import segments

_MOST_DELETED = 200_000
"""So many deleted documents are known, whose changes may come again after a crash."""
_MOST_COMPLAINTS = 100
_ROTATE_BYTES = 64 * 2**20
_UNREMOVED_SEGMENTS = 3

DocumentKey = tuple[str, str]
"""Collection and ``_id``."""


@dataclass(frozen=True, slots=True)
class SoakChange:
    """What an event says: ``n`` is ``None`` for a delete, ``key`` for what is about no document."""

    operation: str
    key: DocumentKey | None = None
    n: int | None = None


@dataclass
class ChangesAccount:
    """The documents by what their events said."""

    name: str
    documents: dict[DocumentKey, int] = field(default_factory=dict)
    events: int = 0
    repeats: int = 0
    lost: int = 0
    complaints: list[str] = field(default_factory=list)
    _deleted: dict[DocumentKey, None] = field(default_factory=dict)
    _is_copied: bool = False

    def take(self, changes: Iterable[SoakChange]) -> None:
        for change in changes:
            self.events += 1
            if change.operation == "snapshotEnd":
                self._is_copied = True
            if change.key is not None:
                self._take(change, change.key)

    def _take(self, change: SoakChange, key: DocumentKey) -> None:
        if change.n is None:
            if self.documents.pop(key, None) is None and key not in self._deleted:
                self._complain(change, "delete of an unknown document")
            self._deleted[key] = None
            if len(self._deleted) > _MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]
            return
        before = self.documents.get(key)
        if before is None:
            is_first = change.operation == "insert" or not self._is_copied
            if not is_first and key not in self._deleted:
                self._complain(change, "the insert is missing")
            self.documents[key] = change.n
            return
        if change.n > before + (change.operation != "read"):
            self._complain(change, f"the last n was {before}")
        self.repeats += change.n <= before and change.operation != "read"
        self.documents[key] = max(before, change.n)

    def _complain(self, change: SoakChange, what: str) -> None:
        self.lost += 1
        if len(self.complaints) < _MOST_COMPLAINTS:
            self.complaints.append(f"{self.name}: {change}: {what}")


class FollowedFile:
    """The file of a ``jsonl`` handler, which is rotated when it is large, and then removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rotated = path.with_name(f"{path.name}.1")
        self._read = 0

    def new(self) -> Iterator[SoakChange]:
        if self._rotated.exists():
            yield from self._lines(self._rotated)
        elif self._path.exists():
            yield from self._lines(self._path)
            if self._read > _ROTATE_BYTES:
                self._path.rename(self._rotated)
                return
        # The handler has opened its new file, and so has finished with the old one.
        if self._rotated.exists() and self._path.exists():
            yield from self._lines(self._rotated)
            self._rotated.unlink()
            self._read = 0

    def _lines(self, path: Path) -> Iterator[SoakChange]:
        with path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield _of_event(json.loads(line))


class FollowedLake:
    """The segments of a scope; those that were read are removed, but for the last ones."""

    def __init__(self, directory: Path, scope: str) -> None:
        self._directory = directory
        self._scope = scope
        self._last = -1

    def new(self) -> Iterator[SoakChange]:
        if not (self._directory / self._scope).exists():
            return
        paths = segments(self._directory, self._scope)
        for number, path in paths.items():
            if number > self._last:
                for row in pq.read_table(path, columns=_COLUMNS).to_pylist():
                    yield _of_row(row)
                self._last = number
        for path in list(paths.values())[:-_UNREMOVED_SEGMENTS]:
            path.unlink()


_COLUMNS = ["operation", "collection", "document_key", "full_document", "update_description"]


def _of_row(row: dict[str, Any]) -> SoakChange:
    if row["document_key"] is None:
        return SoakChange(row["operation"])
    change = row["update_description"] or row["full_document"]
    decoded = bson.decode(change) if change else {}
    key = row["collection"], bson.decode(row["document_key"])["_id"]
    return SoakChange(row["operation"], key, decoded.get("updatedFields", decoded).get("n"))


def _of_event(event: dict[str, Any]) -> SoakChange:
    if "documentKey" not in event:
        return SoakChange(event["operationType"])
    fields = event.get("updateDescription", {}).get("updatedFields") or event.get("fullDocument")
    key = event["ns"]["coll"], event["documentKey"]["_id"]
    return SoakChange(event["operationType"], key, (fields or {}).get("n"))
