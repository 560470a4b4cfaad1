"""Reads a file of events as a log of changes, for a comparison with the source."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import bson
import orjson
from bson import ObjectId, json_util

from tailrace.destination import Row, SnapshotBarrier
from tailrace.destination.document_row import JsonRow
from tailrace.destination.folded_log import LoggedChange
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tailrace.event.cluster_position import position
from tailrace.event.codec import CANONICAL_JSON
from tailrace.event.json_lines import json_lines
from tailrace.event.namespace import namespace

_PART = 1024 * 1024
"""Bytes that are read at once. A line may be longer."""
_OF_DOCUMENTS = frozenset({"insert", "update", "replace", "delete", "read"})


class WrittenLines:
    """Implements :class:`tailrace.destination.log_comparison.ChangeLog`.

    Whole lines are read. If the file is renamed meanwhile, the one that takes its name comes next.
    Raises ``OSError``, :class:`Unavailable` if the file is cut, and ``ValueError`` for a line that
    is no event.
    """

    position = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = 0
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def removed(self) -> str:
        rotated = (f"{self._path.name}.", f"{self._path.name}-")
        names = sorted(name for name in os.listdir(self._path.parent) if name.startswith(rotated))
        return f"{self._path} was rotated before ({names[0]} is beside it)" if names else ""

    def more(self) -> Iterator[LoggedChange] | None:
        # In this order: what is renamed gets no more lines.
        is_renamed = os.stat(self._path).st_ino != os.fstat(self._descriptor).st_ino
        if lines := self._lines():
            return self._changes(lines)
        if not is_renamed:
            return None
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        os.close(self._descriptor)
        self._descriptor, self._begin = descriptor, 0
        return iter(())

    def close(self) -> None:
        os.close(self._descriptor)

    def _lines(self) -> list[bytes]:
        size = _PART
        while True:
            data = os.pread(self._descriptor, size, self._begin)
            if end := data.rfind(b"\n") + 1:
                self._begin += end
                return data[:end].splitlines()
            if len(data) < size:
                break
            size *= 2
        if os.fstat(self._descriptor).st_size < self._begin:
            raise Unavailable(f"{self._path} was cut while it was read: it is read again")
        return []

    def _changes(self, lines: list[bytes]) -> Iterator[LoggedChange]:
        for line in lines:
            try:
                yield _change(orjson.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                shown = line[:60].decode(errors="replace")
                raise ValueError(f"{self._path} has a line that is no event: {shown!a}") from error


def row_maker(*, canonical: bool) -> Callable[[ChangeEvent], Row]:
    """Makes the row of a document: the JSON of it in the event's line."""

    def made(event: ChangeEvent) -> Row:
        line = b"".join(json_lines([event.raw], canonical=canonical))
        return JsonRow(_text(orjson.loads(line)["fullDocument"]))

    return made


def _change(event: Mapping[str, Any]) -> LoggedChange:
    operation, where = event["operationType"], namespace(event.get("ns"))
    time: int | None = None
    if (stamp := event.get("clusterTime")) is not None:
        time = position(stamp["$timestamp"]["t"], stamp["$timestamp"]["i"])
    if operation not in _OF_DOCUMENTS:
        snapshot, to = event.get("snapshot"), namespace(event.get("to"))
        if snapshot is not None:
            decoded = json_util.loads(orjson.dumps(snapshot), json_options=CANONICAL_JSON)
            snapshot = SnapshotBarrier.of(ChangeEvent.from_document({"snapshot": decoded}))
        return LoggedChange(operation, where, time, to=to, snapshot=snapshot)
    key, document = event.get("documentKey"), event.get("fullDocument")
    description = event.get("updateDescription")
    return LoggedChange(
        operation,
        where,
        time,
        None if key is None else _key(key),
        None if document is None else _text(document),
        None if description is None else _text(description),
    )


def _key(key: Mapping[str, Any]) -> bytes:
    id = key.get("_id")
    if len(key) == 1 and type(id) is dict and id.keys() == {"$oid"}:
        return bson.encode({"_id": ObjectId(id["$oid"])})
    return bson.encode(json_util.loads(orjson.dumps(key), json_options=CANONICAL_JSON))


def _text(value: Any) -> str:
    return orjson.dumps(value).decode()
