"""The documents of a scope as its segments leave them, in a temporary file.

What drops, renames and the end of a snapshot do to single documents is not in their events: it
takes the keys that are there. Changes are applied in the order of the log; one that comes again, or
after a newer one of its document, has no effect (:mod:`tailrace.event.document_identity` says which
document a change of a sharded collection is about).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import bson

from tailrace.errors import PipelineRefused
from tailrace.event.cluster_position import BEFORE_ALL, position
from tailrace.event.codec import CODEC
from tailrace.event.collection_ends import CollectionEnds
from tailrace.event.document_identity import changed_key, is_of_another
from tailrace.event.document_key import identity, shard_key
from tailrace.event.namespace import Namespace
from tailrace.event.snapshot_barrier import DONE, SnapshotBarrier
from tailrace.event.snapshot_events import READ, SNAPSHOT_END
from tailrace.event.update_description import UNFIT, updated_bson
from tailrace.spark.landed_change import OF_MANY, PUTS, Json, KeyChange, LandedChange
from tailrace.spark.replaced_keys import ReplacedKeys
from tailrace.spark.values import id_text, to_bson

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE documents (
    collection INTEGER, id BLOB, key TEXT, time INTEGER, there INTEGER, shard BLOB, document,
    PRIMARY KEY (collection, id)
);
"""
_PUT = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)"
_KEYS = "SELECT key FROM documents WHERE collection = ? AND time < ? AND there"
_KEPT = "SELECT id, key FROM documents WHERE collection = ? AND time < ? AND there"
_DELETE = "DELETE FROM documents WHERE collection = ? AND time < ?"


@dataclass(frozen=True, slots=True)
class _Known:
    key: str
    time: int
    there: bool
    shard: bytes | None
    """The document key after the last change, if that tells the shard key."""
    document: Json | None


@dataclass(slots=True)
class CurrentState:
    """``documents``: whether documents are stored, not keys alone. ``removed``: what of the log is
    not there any more, for people; empty if nothing that the query has read."""

    documents: bool
    removed: str = ""
    shown: bool = False
    """Whether the effects count, and so have to be all of them."""
    time: int = BEFORE_ALL
    """That of the last change."""
    _file: sqlite3.Connection = field(default_factory=lambda: sqlite3.connect(""))
    _collections: dict[Namespace, int] = field(default_factory=dict)
    _ends: CollectionEnds = field(default_factory=CollectionEnds)
    _whole: set[Namespace] = field(default_factory=set)
    """Collections and databases of which all documents are known, whatever was removed."""

    _replaced: ReplacedKeys = field(init=False)
    _newest: int = BEFORE_ALL

    def __post_init__(self) -> None:
        self._file.isolation_level = None
        self._file.executescript(_SCHEMA)
        self._replaced = ReplacedKeys(self._file)

    def apply(self, change: LandedChange) -> Iterator[KeyChange]:
        """Applies a change as its effects are taken, which has to be all of them."""
        time = self.time = change.time
        self._newest = max(time, self._newest)
        for effect in self._effects(change, time):
            if not (effect.there or self.shown) and change.operation in PUTS:
                self._replaced.add(effect.collection, effect.key)
            else:
                self._replaced.remove(effect.collection, effect.key)
            yield effect
        if time < self._newest:
            return  # in its place, the end of a key would be older than the key
        if self.shown:
            for of, key in self._replaced.taken():
                yield KeyChange(of, key, there=False)
        elif change.operation in OF_MANY:
            self._replaced.clear()  # where this was shown, so were they

    def _effects(self, change: LandedChange, time: int) -> Iterator[KeyChange]:
        of = change.namespace
        match change.operation:
            case operation if operation == SNAPSHOT_END:
                if change.snapshot is not None:
                    yield from self._sweep(change.snapshot, of, time)
            case _ if of is None:
                pass
            case "create":
                self._whole.add(of)
            case "drop":
                yield from self._end(of, time)
            case "dropDatabase":
                for each in [one for one in self._collections if one.db == of.db]:
                    yield from self._end(each, time)
                database = Namespace(of.db)
                self._ends.add(database, time)
                self._whole.add(database)
            case "rename":
                if change.to is not None:
                    yield from self._rename(of, change.to, time)
            case _ if change.key is not None and of.coll is not None:
                yield from self._write(change, of, change.key)

    # --- one document --------------------------------------------------------------------------

    def _write(self, change: LandedChange, of: Namespace, key: bytes) -> Iterator[KeyChange]:
        time, operation, key_id = change.time, change.operation, id_text(key)
        if key_id is None or self._ends.follows(time, of):
            return
        id = identity(key, 0)
        known = self._known(of, id)
        if known is not None and (time < known.time or _is_elsewhere(known, change, key)):
            return
        before = known.key if known is not None and known.there else None
        document = change.document
        if operation == "update" and document is None:
            if before is None and change.looked_up:
                return  # its deletion is still to come
            document = self._updated(known, change, of)
        there = operation != "delete"
        own = key_id if operation != "replace" or document is None else id_text(document) or key_id
        self._put(of, id, _Known(own, time, there, _shard(change, key), document))
        if before is not None and before != own:
            yield KeyChange(of, before, there=False)
        yield KeyChange(of, own, there, document)

    def _updated(self, known: _Known | None, change: LandedChange, of: Namespace) -> Json | None:
        """The document after an update without an image; ``None`` if it cannot be known."""
        base = known.document if known is not None and known.there else None
        if base is None:
            if self.documents and not (known is not None and known.there):
                self._require_whole(of, "an update without its document")
            return None
        if change.description is None:
            return None
        try:
            return updated_bson(base, change.description)
        except UNFIT:
            return None

    def _known(self, of: Namespace, id: bytes) -> _Known | None:
        sql = "SELECT key, time, there, shard, document FROM documents"
        values = self._collections.get(of), id
        row = self._file.execute(f"{sql} WHERE collection = ? AND id = ?", values).fetchone()
        return None if row is None else _Known(row[0], row[1], bool(row[2]), row[3], row[4])

    def _put(self, of: Namespace, id: bytes, known: _Known) -> None:
        number = self._collections.setdefault(of, len(self._collections))
        document = known.document if self.documents else None
        values = number, id, known.key, known.time, known.there, known.shard, document
        self._file.execute(_PUT, values)

    # --- many documents ------------------------------------------------------------------------

    def _end(self, of: Namespace, time: int, spared: int = -1) -> Iterator[KeyChange]:
        """Removes the older documents of a collection, but for the keys that ``spared`` has, too.

        Keys are compared as texts: ``1`` and ``1.0`` are one ``_id``, and two keys of a table.
        """
        if time <= self._ends.last(of):
            return  # it comes again, and a rename may have brought older documents since
        self._require_whole(of, "the end of a collection")
        self._ends.add(of, time)
        values = self._collections.get(of), time
        sql = f"{_KEYS} AND (id, key) NOT IN ({_KEPT})"
        for (key,) in self._file.execute(sql, (*values, spared, time)):
            yield KeyChange(of, key, there=False)
        self._file.execute(_DELETE, values)
        self._whole.add(of)

    def _rename(self, of: Namespace, to: Namespace, time: int) -> Iterator[KeyChange]:
        if time <= self._ends.last(of):
            return  # it comes again
        whole = self._is_whole(of)
        self._require_whole(of, "a rename")
        source, target = (
            self._collections.setdefault(each, len(self._collections)) for each in (of, to)
        )
        yield from self._end(to, time, spared=source)
        sql = "SELECT key, document FROM documents WHERE collection = ? AND time < ? AND there"
        for key, document in self._file.execute(sql, (source, time)):
            yield KeyChange(of, key, there=False)
            yield KeyChange(to, key, True, document)
        move = "UPDATE OR IGNORE documents SET collection = ? WHERE collection = ? AND time < ?"
        self._file.execute(move, (target, source, time))
        self._file.execute(_DELETE, (source, time))
        self._ends.add(of, time)
        self._whole.add(of)
        if not whole:
            self._whole.discard(to)

    def _sweep(
        self, snapshot: SnapshotBarrier, covered: Namespace | None, time: int
    ) -> Iterator[KeyChange]:
        """Removes the documents that a whole snapshot did not name."""
        if snapshot.began is None or snapshot.filtered:
            return
        began = position(snapshot.began.time, snapshot.began.inc)
        for of, states in snapshot.states.items():
            if self.removed and DONE in states:
                self._require_whole(of, "the end of a snapshot")
        for of, number in self._collections.items():
            ours = covered is None or covered in (of, Namespace(of.db))
            if not ours or not snapshot.is_complete(of) or self._ends.follows(time, of):
                continue
            for (key,) in self._file.execute(_KEYS, (number, began)):
                yield KeyChange(of, key, there=False)
            self._file.execute(_DELETE, (number, began))
            self._whole.add(of)

    def _is_whole(self, of: Namespace) -> bool:
        return not self.removed or of in self._whole or Namespace(of.db) in self._whole

    def _require_whole(self, of: Namespace, what: str) -> None:
        if self.shown and not self._is_whole(of):
            raise PipelineRefused(
                f"{self.removed}, and {what} of {of} takes the documents in them. Start the query "
                "with a new checkpoint, and its tables anew; keep the segments for as long as a "
                "query with view=changes runs"
            )


def _is_elsewhere(known: _Known, change: LandedChange, key: bytes) -> bool:
    """Whether the document has moved to another shard, and this is an event of where it was."""
    if not known.there or known.shard is None or change.operation in ("insert", READ):
        return False
    same_time = known.time == change.time
    if change.operation != "delete" and not same_time:
        return False
    of_event = shard_key(key)
    return bool(of_event) and is_of_another(shard_key(known.shard), of_event, same_time=same_time)


def _shard(change: LandedChange, key: bytes) -> bytes | None:
    """The document key after a change, if it has a shard key; a row of a snapshot tells none."""
    if change.operation in ("delete", READ) or not shard_key(key):
        return None
    if change.operation == "insert":
        return key
    decoded: dict[str, Any] = bson.decode(key, CODEC)
    document, description = (
        None if each is None else bson.decode(_raw(each), CODEC)
        for each in (change.document, change.description)
    )
    return bson.encode(changed_key(decoded, change.operation, document, description))


def _raw(document: Json) -> bytes:
    return to_bson(document) if isinstance(document, str) else document
