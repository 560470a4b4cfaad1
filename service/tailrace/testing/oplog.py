"""An oplog in memory: the changes in order, the clock, and the documents at any time."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import bson
from bson.timestamp import Timestamp

from tailrace.event import Namespace
from tailrace.event.bson import encoded
from tailrace.event.snapshot_events import document_id
from tailrace.testing.entry import Entry, Transaction
from tailrace.testing.tokens import event_token

START = Timestamp(1_764_500_000, 1)
"""The time of the first change."""


@dataclass(slots=True, eq=False)
class CollectionHistory:
    """The documents of one collection, each with its versions, in the order of their first insert.

    ``uuid`` stays the same over renames. A dropped collection is not in :attr:`Oplog.collections`.
    """

    ns: Namespace
    name: str
    """Whatever its namespace is now; its UUID comes from this."""
    versions: dict[bytes, list[tuple[Timestamp, bytes | None]]] = field(default_factory=dict)
    """By ``_id`` (a BSON document with only this field), the times of its changes and the documents
    after them; ``None`` after a delete."""
    since: Timestamp | None = None
    """The time of the last DDL, its creation included: it cannot be read as of an earlier one."""

    @property
    def uuid(self) -> bytes:
        """As in ``collectionUUID``, and in the tokens of its changes."""
        return uuid.uuid5(uuid.NAMESPACE_DNS, self.name).bytes

    def at(self, time: Timestamp | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Each ``_id`` and its document, as of a time or now."""
        for key, versions in self.versions.items():
            known = [raw for at, raw in versions if time is None or at <= time]
            if known and known[-1] is not None:
                yield key, known[-1]

    def get(self, key: bytes) -> bytes | None:
        """The document with this ``_id``, as it is now."""
        versions = self.versions.get(key)
        return versions[-1][1] if versions else None


class Oplog:
    """The one history that streams, snapshots and builders of events share."""

    def __init__(self) -> None:
        self.now = START
        self.entries: list[Entry] = []
        self.collections: dict[Namespace, CollectionHistory] = {}
        self.grown = anyio.Event()
        self.transaction: Transaction | None = None
        """The open transaction: its changes share their time."""
        self._transactions = 0
        self._created = 0
        self._tokens: list[str] = []
        self._index = 0

    def collection(self, ns: Namespace) -> CollectionHistory:
        """The collection, created if there is none."""
        if ns not in self.collections:
            self._created += 1
            self.collections[ns] = CollectionHistory(ns, f"{ns}/{self._created}")
        return self.collections[ns]

    def append(
        self, operation: str, ns: Namespace, of: CollectionHistory | None, **parts: Any
    ) -> Entry:
        """Writes a change, and gives it the next time and token."""
        if self.transaction is None or not self._index:
            self.tick()
            self._index = 0
        key = parts.get("key")
        token = event_token(
            self.now,
            self._index,
            of.name if of is not None else str(ns),
            len(self.entries),
        )["_data"]
        if self.transaction is not None:
            self._index += 1
            parts["transaction"] = self.transaction
        entry = Entry(token, self.now, operation, ns, of.uuid if of else None, **parts)
        if of is not None and (key is None or of.since is None):
            of.since = self.now
        if of is not None and key is not None:
            of.versions.setdefault(key, []).append((self.now, entry.after))
        self.entries.append(entry)
        self._tokens.append(token)
        self.wake()
        return entry

    def begin(self) -> None:
        """The changes from here to :meth:`commit` are one transaction."""
        self._transactions += 1
        self.transaction, self._index = Transaction.of(self._transactions), 0

    def commit(self) -> None:
        """Ends the transaction."""
        self.transaction, self._index = None, 0

    def tick(self, seconds: int = 0) -> None:
        """Moves the clock: to the next increment, or by whole seconds."""
        now = self.now
        self.now = Timestamp(now.time + seconds, 1) if seconds else Timestamp(now.time, now.inc + 1)

    def wake(self) -> None:
        """Ends the waits of all cursors."""
        self.grown.set()
        self.grown = anyio.Event()

    def after(self, token: str) -> int:
        """The index of the first change after a token."""
        return bisect_right(self._tokens, token)

    def since(self, time: Timestamp) -> int:
        """The index of the first change at a time or later."""
        return next((n for n, each in enumerate(self.entries) if each.time >= time), self.end)

    @property
    def end(self) -> int:
        """The index after the last change."""
        return len(self.entries)


def id_of(document: Any) -> bytes:
    """The ``_id`` of a document as a BSON document with only this field."""
    raw = document if isinstance(document, bytes) else bson.encode(document)
    return encoded(document_id(raw, 0))
