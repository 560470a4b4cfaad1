"""The changes that a scope has, in order, as they are written.

Every change has a number: twice its index in the oplog, and one more for the invalidate after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent, Namespace
from tailrace.model import Scope
from tailrace.testing.entry import OF_DOCUMENTS, Entry
from tailrace.testing.oplog import Oplog
from tailrace.testing.tokens import invalidate_token
from tests.simulation.shown_events import canonical

Document = tuple[Any, bytes]
"""The UUID of its collection, and its key."""


class Violation(AssertionError):
    """A promise is broken."""


class Expected:
    """The changes that a scope has, in order, as they are written."""

    def __init__(self, oplog: Oplog, scope: Scope) -> None:
        self._oplog = oplog
        self.scope = scope
        self._known = 0
        self._numbers: dict[str, int] = {}
        """By the data of its token."""
        self._changes: list[int] = []
        self._barriers: list[int] = []
        self._documents: defaultdict[Document, list[int]] = defaultdict(list)
        self._document_of: dict[int, Document] = {}
        self._queues: defaultdict[tuple[Namespace, bytes], list[int]] = defaultdict(list)
        self._versions: dict[Document, list[tuple[Timestamp, bytes | None]]] = {}

    @property
    def changes(self) -> Sequence[int]:
        """Every change of the scope so far."""
        self._read()
        return self._changes

    def number(self, event: ChangeEvent) -> int:
        """The change of an event. Raises :class:`Violation` if the scope does not have it."""
        self._read()
        data = canonical(event.id["_data"])
        if data not in self._numbers:
            raise Violation(f"a handler got {event!r}, which its scope does not have")
        return self._numbers[data]

    def of_row(self, event: ChangeEvent) -> Document:
        """The document of a row. Raises :class:`Violation` if it is not what the row says."""
        uuid, key = bytes(event.id["collection"]), bson.encode(event.document_key)
        versions = self._versions.get((uuid, key), ())
        time = event.cluster_time
        before = [raw for at, raw in versions if time is not None and at <= time]
        if not before or before[-1] is None or bson.decode(before[-1]) != event.full_document:
            raise Violation(f"{event!r} has {event.full_document}, which was never there at {time}")
        return uuid, key

    def existing(self, since: Timestamp) -> Iterator[Document]:
        """The documents that exist now, in collections that no DDL has concerned since that time,
        and that have not changed since then."""
        self._read()
        moved = {e.uuid for e in self._oplog.entries if e.key is None and e.time > since}
        for ns, of in self._oplog.collections.items():
            if of.uuid in moved or not self._has(ns):
                continue
            for key, versions in of.versions.items():
                time, raw = versions[-1]
                if raw is not None and time <= since:
                    yield of.uuid, key

    def until(self, document: Document, time: Timestamp) -> Sequence[int]:
        """The changes of a document up to a time."""
        self._read()
        return [each for each in self._documents[document] if self.time(each) <= time]

    def barrier(self, time: Timestamp) -> int | None:
        """The last barrier up to a time."""
        self._read()
        return next((each for each in reversed(self._barriers) if self.time(each) <= time), None)

    def time(self, number: int) -> Timestamp:
        """When the change happened."""
        return self._oplog.entries[number // 2].time

    def name(self, number: int) -> str:
        """The change, for people."""
        entry = self._oplog.entries[number // 2]
        what = "invalidate after" if number % 2 else entry.operation
        return f"{number} ({what} {entry.ns} {entry.key!r} at {entry.time.time}.{entry.time.inc})"

    def document(self, number: int) -> Document | None:
        """Its document; ``None`` for DDL and invalidates."""
        return self._document_of.get(number)

    def queue(self, number: int) -> Sequence[int]:
        """It, and the changes before it of its key in a collection of this name."""
        entry = self._oplog.entries[number // 2]
        of = self._queues[entry.ns, entry.key] if entry.key is not None else [number]
        return of[: bisect_right(of, number)]

    def before(self, number: int) -> Iterator[int]:
        """What must be handled before it: the former change of its document, and the last barrier;
        for a barrier, all since the last one."""
        self._read()
        at = bisect_right(self._barriers, number - 1)
        barrier = self._barriers[at - 1] if at else -1
        if barrier >= 0:
            yield barrier
        document = self.document(number)
        if document is None:
            begin = bisect_right(self._changes, barrier)
            yield from self._changes[begin : bisect_right(self._changes, number - 1)]
        else:
            of = self._documents[document]
            yield from of[bisect_right(of, barrier) : bisect_right(of, number - 1)]

    def between(self, document: Document, after: int, before: int) -> Sequence[int]:
        """The changes of a document between two of them."""
        of = self._documents[document]
        return of[bisect_right(of, after) : bisect_right(of, before - 1)]

    def barrier_between(self, document: Document, after: int, before: int) -> bool:
        """Whether DDL of its collection came between two changes."""
        entries = (
            self._oplog.entries[each // 2] for each in self._barriers if after < each < before
        )
        return any(entry.uuid == document[0] for entry in entries)

    def _read(self) -> None:
        for index in range(self._known, self._oplog.end):
            entry = self._oplog.entries[index]
            if entry.uuid is not None and entry.key is not None:
                self._versions.setdefault((entry.uuid, entry.key), []).append(
                    (entry.time, entry.after)
                )
            if self._sees(entry):
                self._add(2 * index, entry.token, entry)
                if self._ends(entry):
                    data = invalidate_token({"_data": entry.token})["_data"]
                    self._add(2 * index + 1, data, None)
        self._known = self._oplog.end

    def _add(self, number: int, data: str, entry: Entry | None) -> None:
        self._numbers[data] = number
        self._changes.append(number)
        if entry is not None and entry.key is not None:
            document = entry.uuid, entry.key
            self._documents[document].append(number)
            self._queues[entry.ns, entry.key].append(number)
            self._document_of[number] = document
        else:
            self._barriers.append(number)

    def _sees(self, entry: Entry) -> bool:
        return self._has(entry.ns) or (entry.to is not None and self._has(entry.to))

    def _has(self, ns: Namespace) -> bool:
        scope = self.scope
        if scope.database is None:
            return True
        return ns.db == scope.database and scope.collection in (None, ns.coll)

    def _ends(self, entry: Entry) -> bool:
        if self.scope.database is None or entry.operation in OF_DOCUMENTS:
            return False
        of_collection = self.scope.collection is not None and entry.operation in ("drop", "rename")
        return of_collection or entry.operation == "dropDatabase"
