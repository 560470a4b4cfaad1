"""Writes changes as a user of MongoDB would, and returns the change event of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from tailrace.event import ChangeEvent, Namespace
from tailrace.event.codec import CODEC
from tailrace.event.reply import read_reply
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END, ReadEvents, barrier
from tailrace.testing.entry import EXPANDED, Entry, Shown
from tailrace.testing.oplog import CollectionHistory, Oplog, id_of
from tailrace.testing.tokens import invalidate_token

SNAPSHOT = "0123456789abcdef"
"""The id of the snapshot whose events :class:`Changes` builds."""


class Changes:
    """The changes of one collection, in memory.

    Each method writes one change to the oplog and returns its event: BSON as mongod lays it out,
    with a resume token and a cluster time that grow with each change. The events have the document
    after the change (``full_document``, as it was then), the one before it (``before_change``), and
    the UUID of the collection and the description of DDL (``expanded``) if asked for. In a
    :class:`tailrace.testing.Harness` the scope's own options decide that.
    """

    def __init__(
        self,
        database: str = "shop",
        collection: str = "orders",
        *,
        full_document: bool = True,
        before_change: bool = False,
        expanded: bool = False,
    ) -> None:
        self.ns = Namespace(database, collection)
        self.oplog = Oplog()
        self._shown = Shown(full_document, before_change, expanded)

    def elsewhere(self, collection: str, database: str | None = None) -> Changes:
        """The changes of another collection, in the same oplog."""
        other = Changes(database or self.ns.db, collection)
        other.oplog, other._shown = self.oplog, self._shown
        return other

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The documents that the collection has now, in the order of their first insert."""
        found = self.oplog.collections.get(self.ns)
        return [bson.decode(raw, CODEC) for _, raw in found.at()] if found is not None else []

    # --- documents -------------------------------------------------------------------------

    def insert(self, document: Mapping[str, Any]) -> ChangeEvent:
        """Inserts a document, which must have an ``_id`` of any type."""
        raw = bson.encode(document)
        key = id_of(raw)
        if self._collection.get(key) is not None:
            raise ValueError(f"{self.ns} has a document with the _id {document['_id']!r}")
        return self._write("insert", key=key, after=raw)

    def update(
        self,
        id: Any,
        fields: Mapping[str, Any] | None = None,
        *,
        unset: Sequence[str] = (),
        truncate: Mapping[str, int] | None = None,
    ) -> ChangeEvent:
        """Sets and removes fields (paths with dots), and cuts arrays to new sizes."""
        key, before = self._existing(id)
        document = bson.decode(before, CODEC)
        for path, value in (fields or {}).items():
            _set(document, path, value)
        for path in unset:
            parent, name = _parent(document, path)
            parent.pop(name, None)
        for path, size in (truncate or {}).items():
            parent, name = _parent(document, path)
            parent[name] = parent[name][:size]
        update = {
            "updatedFields": dict(fields or {}),
            "removedFields": list(unset),
            "truncatedArrays": [{"field": f, "newSize": n} for f, n in (truncate or {}).items()],
        }
        return self._write(
            "update", key=key, before=before, after=bson.encode(document), update=update
        )

    def replace(self, document: Mapping[str, Any]) -> ChangeEvent:
        """Replaces the document with the same ``_id``."""
        key, before = self._existing(document["_id"])
        return self._write("replace", key=key, before=before, after=bson.encode(document))

    def delete(self, id: Any) -> ChangeEvent:
        """Deletes the document with this ``_id``."""
        key, before = self._existing(id)
        return self._write("delete", key=key, before=before)

    def lose(self, id: Any) -> None:
        """The document is gone, and no event says so: only a snapshot can show it."""
        key, _ = self._existing(id)
        self.oplog.tick()
        self._collection.versions[key].append((self.oplog.now, None))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The changes of the block have one cluster time, ``lsid`` and ``txn_number``."""
        self.oplog.begin()
        try:
            yield
        finally:
            self.oplog.commit()

    # --- DDL -------------------------------------------------------------------------------

    def drop(self) -> ChangeEvent:
        """Drops the collection; it and its documents are gone. A stream of it is invalidated."""
        event = self._write("drop")
        del self.oplog.collections[self.ns]
        return event

    def rename(self, collection: str) -> ChangeEvent:
        """Renames the collection, with its documents. A stream of it is invalidated."""
        to, of = Namespace(self.ns.db, collection), self._collection
        names = {"db": to.db, "coll": collection}
        event = self._write("rename", to=to, description={"to": names})
        del self.oplog.collections[self.ns]
        of.ns, self.oplog.collections[to] = to, of
        return event

    def drop_database(self) -> ChangeEvent:
        """Drops every collection, then the database; returns the last event. Streams of it are
        invalidated."""
        for ns in [each for each in self.oplog.collections if each.db == self.ns.db]:
            self.elsewhere(str(ns.coll)).drop()
        return self._shown_as(self.oplog.append("dropDatabase", Namespace(self.ns.db), None))

    def expanded(self, operation: str, description: Mapping[str, Any] | None = None) -> ChangeEvent:
        """``create``, ``createIndexes``, ``modify`` or another operation that streams show only
        with ``showExpandedEvents``, with its ``operationDescription``."""
        if operation not in EXPANDED:
            raise ValueError(f"{operation!r} is not one of {', '.join(sorted(EXPANDED))}")
        return self._write(operation, description=description or {})

    def invalidate(self) -> ChangeEvent:
        """The event with which a stream ends after the last change. In a harness the stream adds it
        by itself, after a drop or a rename."""
        return ChangeEvent(invalidated(self.oplog.entries[-1]).event(self._shown))

    # --- snapshots -------------------------------------------------------------------------

    def snapshot_begin(self) -> ChangeEvent:
        """The barrier before the rows of a snapshot."""
        return self._barrier(SNAPSHOT_BEGIN)

    def read(self, id: Any) -> ChangeEvent:
        """The row of a snapshot: the document as it is now."""
        _, raw = self._existing(id)
        found = read_reply(bson.encode({"cursor": {"firstBatch": [RawBSONDocument(raw)], "id": 0}}))
        ns = self.ns
        rows = ReadEvents(SNAPSHOT, self._collection.uuid.hex(), ns.db, str(ns.coll))
        return rows.batch([found], self.oplog.now).events()[0]

    def snapshot_end(self) -> ChangeEvent:
        """The barrier after the rows: what was not named since the begin is not there any more."""
        return self._barrier(SNAPSHOT_END)

    def _barrier(self, operation: str) -> ChangeEvent:
        fields = {"ns": {"db": self.ns.db, "coll": self.ns.coll}, "snapshot": {"id": SNAPSHOT}}
        return barrier(operation, SNAPSHOT, self.oplog.now, fields).events()[0]

    # --- what they share -------------------------------------------------------------------

    @property
    def _collection(self) -> CollectionHistory:
        return self.oplog.collection(self.ns)

    def _existing(self, id: Any) -> tuple[bytes, bytes]:
        key = bson.encode({"_id": id})
        raw = self._collection.get(key)
        if raw is None:
            raise LookupError(f"{self.ns} has no document with the _id {id!r}")
        return key, raw

    def _write(self, operation: str, **parts: Any) -> ChangeEvent:
        return self._shown_as(self.oplog.append(operation, self.ns, self._collection, **parts))

    def _shown_as(self, entry: Entry) -> ChangeEvent:
        return ChangeEvent(entry.event(self._shown))


def invalidated(entry: Entry) -> Entry:
    """The invalidate that follows a change."""
    token = invalidate_token({"_data": entry.token})["_data"]
    return replace(entry, token=token, operation="invalidate", to=None, uuid=None, description=None)


def _parent(document: Any, path: str) -> tuple[Any, Any]:
    """The mapping or list that holds the last part of a path, and that part."""
    *parents, last = path.split(".")
    for name in parents:
        if isinstance(document, list):
            document = document[int(name)]
        else:
            document = document.setdefault(name, {})
    return document, int(last) if isinstance(document, list) else last


def _set(document: Any, path: str, value: Any) -> None:
    parent, name = _parent(document, path)
    if isinstance(parent, list) and name == len(parent):
        parent.append(value)
    else:
        parent[name] = value
