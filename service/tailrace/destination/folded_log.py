"""The last state of each document in a log of changes, in a temporary file.

Changes are applied by cluster time, and those of one time in the order of the log: a change that
comes again later, because a position was set back, has no effect. So what is deleted is noted, too.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import bson
import orjson

from tailrace.destination.document_row import DocumentRow, JsonRow
from tailrace.destination.temporary_rows import held_keys, held_rows, temporary_file
from tailrace.engine import HeldKeys, HeldRows
from tailrace.event import Namespace
from tailrace.event.cluster_position import BEFORE_ALL, position
from tailrace.event.codec import CODEC
from tailrace.event.collection_ends import CollectionEnds
from tailrace.event.document_identity import ShardKey, is_of_another, shard_key_in, shard_key_of
from tailrace.event.document_key import id_alone, identity, shard_key
from tailrace.event.extended_json import to_json
from tailrace.event.snapshot_barrier import DONE, SnapshotBarrier
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END
from tailrace.event.update_description import UNFIT, updated_text
from tailrace.model.snapshot import DocumentId

Json: TypeAlias = str | bytes
"""BSON as ``bytes``, or Extended JSON as ``str``."""

_GONE, _UNKNOWN, _STORED, _UPDATED = range(4)
"""States of a document. ``_UPDATED``: made of an update, which does not tell the order of fields.
"""
_DOCUMENTS = (_STORED, _UPDATED)

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
CREATE TABLE documents (
    collection INTEGER, id BLOB, key BLOB, time INTEGER, state INTEGER, document,
    PRIMARY KEY (collection, id)
);
"""
_PUT = """
INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    key = excluded.key, time = excluded.time, state = excluded.state, document = excluded.document
    WHERE excluded.time >= time
"""


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """An event of a log.

    ``time``: its :func:`position`; ``None`` for an event without one. ``key``: the document key as
    BSON. ``document``: after the change; ``None`` if the event has none. ``to``: the new
    name of a rename. ``snapshot``: that of a barrier.
    """

    operation: str
    namespace: Namespace | None
    time: int | None = None
    key: bytes | None = None
    document: Json | None = None
    description: Json | None = None
    to: Namespace | None = None
    snapshot: SnapshotBarrier | None = None


@dataclass(slots=True)
class FoldedLog:
    """The documents of all collections. Its methods block, and come one after another."""

    _file: sqlite3.Connection = field(default_factory=partial(temporary_file, _SCHEMA))
    _collections: dict[Namespace, int] = field(default_factory=dict)
    _ends: CollectionEnds = field(default_factory=CollectionEnds)
    _whole: set[Namespace] = field(default_factory=set)
    """The collections of which the log has all documents, whatever of it was removed."""
    _all_whole: bool = False
    _snapshots: set[str] = field(default_factory=set)
    _time: int = BEFORE_ALL

    def close(self) -> None:
        """Removes the file."""
        self._file.close()

    def is_whole(self, collection: Namespace) -> bool:
        """Whether what was folded has all documents of a collection: a snapshot has read it, or it
        was empty at some time."""
        return self._all_whole or collection in self._whole

    def fold(self, changes: Iterable[LoggedChange]) -> None:
        """Applies the next changes."""
        self._file.execute("BEGIN")
        for change in changes:
            self._time = self._time if change.time is None else change.time
            self._apply(change, self._time)
        self._file.execute("COMMIT")

    def rows(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        """The documents with these keys; ``None`` for one that is not there, or not known."""
        found = (self._found(collection, identity(key.raw, 0)) for key in keys)
        rows = ((None, 0) if one is None else (_row(*one[1:]), len(one[2] or b"")) for one in found)
        return held_rows(rows, len(keys))

    def keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        """The next ``most`` keys of a collection."""
        sql = "SELECT id, key FROM documents WHERE collection = ? AND id > ? AND state IN (?, ?)"
        last = bytes.fromhex(after or "")
        values = self._collections.get(collection), last, *_DOCUMENTS, most
        rows = self._file.execute(f"{sql} ORDER BY id LIMIT ?", values).fetchall()
        return held_keys(rows, most)

    # --- one change ----------------------------------------------------------------------------

    def _apply(self, change: LoggedChange, time: int) -> None:
        namespace = change.namespace
        match change.operation:
            case operation if operation == SNAPSHOT_BEGIN and change.snapshot is not None:
                self._snapshots.add(change.snapshot.id)
            case operation if operation == SNAPSHOT_END and change.snapshot is not None:
                self._sweep(change.snapshot, namespace, time)
            case _ if namespace is None:
                pass
            case "drop" | "create":
                if self._end(namespace, time):
                    self._whole.add(namespace)
            case "dropDatabase":
                self._ends.add(namespace, time)
                for each in [one for one in self._collections if one.db == namespace.db]:
                    self._end(each, time)
            case "rename" if change.to is not None:
                self._rename(namespace, change.to, time)
            case _ if change.key is not None:
                self._write(change, namespace, change.key, time)

    def _write(self, change: LoggedChange, of: Namespace, key: bytes, time: int) -> None:
        """Applies an event of a document."""
        if self._ends.follows(time, of):
            return
        id = identity(key, 0)
        state, document = _STORED, change.document
        shard = shard_key(key)
        if change.operation == "delete":
            state, document = _GONE, None
        if shard or (document is None and state == _STORED):
            found = self._found(of, id)
            if found is not None and shard and _is_elsewhere(found, change, shard, time):
                return
            if document is None and state == _STORED:
                if found is not None and time < found[0]:
                    return
                state, document = _updated(found, change.description)
        number = self._collections.setdefault(of, len(self._collections))
        self._file.execute(_PUT, (number, id, id_alone(key), time, state, document))

    def _found(self, of: Namespace, id: bytes) -> tuple[int, int, Json | None] | None:
        """Time, state and document."""
        sql = "SELECT time, state, document FROM documents WHERE collection = ? AND id = ?"
        values = self._collections.get(of), id
        found: tuple[int, int, Json | None] | None = self._file.execute(sql, values).fetchone()
        return found

    def _end(self, of: Namespace, time: int) -> bool:
        """Removes the documents of a collection that are older. False: the end comes again, and a
        rename may have brought such documents since."""
        if time <= self._ends.last(of):
            return False
        self._ends.add(of, time)
        sql = "DELETE FROM documents WHERE collection = ? AND time < ?"
        self._file.execute(sql, (self._collections.get(of), time))
        return True

    def _rename(self, of: Namespace, to: Namespace, time: int) -> None:
        if time <= self._ends.last(of):
            return  # it comes again
        self._end(to, time)
        source, target = (
            self._collections.setdefault(each, len(self._collections)) for each in (of, to)
        )
        sql = "UPDATE OR IGNORE documents SET collection = ? WHERE collection = ? AND time < ?"
        self._file.execute(sql, (target, source, time))
        self._end(of, time)
        self._whole.discard(to)
        if of in self._whole:
            self._whole.add(to)

    def _sweep(self, snapshot: SnapshotBarrier, covered: Namespace | None, time: int) -> None:
        """Removes the documents that a whole snapshot did not name."""
        if snapshot.began is None or snapshot.filtered:
            return
        began = position(snapshot.began.time, snapshot.began.inc)
        for of, number in self._collections.items():
            ours = covered is None or covered in (of, Namespace(of.db))
            if ours and snapshot.is_complete(of) and not self._ends.follows(time, of):
                sql = "DELETE FROM documents WHERE collection = ? AND time < ?"
                self._file.execute(sql, (number, began))
        if snapshot.id in self._snapshots:
            self._whole |= {of for of, states in snapshot.states.items() if DONE in states}
            self._all_whole |= not snapshot.chosen


def _is_elsewhere(
    found: tuple[int, int, Json | None], change: LoggedChange, shard: ShardKey, time: int
) -> bool:
    """Whether the document has moved to another shard, and this is an event of where it was."""
    last, _, document = found
    same_time = last == time
    if document is None or not (same_time or change.operation == "delete"):
        return False
    if change.operation == "insert":
        return False
    if isinstance(document, str):
        there = shard_key_in(document.encode(), shard)
    else:
        fields: dict[str, Any] = bson.decode(document, CODEC)
        there = shard_key_of(fields, shard)
    return is_of_another(there, shard, same_time=same_time)


def _updated(
    found: tuple[int, int, Json | None] | None, description: Json | None
) -> tuple[int, Json | None]:
    """State and document after an update without a document."""
    if found is None or found[2] is None or description is None:
        return _UNKNOWN, None
    try:
        text = updated_text(_json(found[2]), _json(description))
        return _UPDATED, orjson.dumps(orjson.loads(text)).decode()
    except UNFIT:
        return _UNKNOWN, None


def _json(document: Json) -> str:
    return document if isinstance(document, str) else to_json(document, canonical=True)


def _row(state: int, document: Json | None) -> DocumentRow | JsonRow | None:
    if document is None:
        return None
    if isinstance(document, bytes):
        return DocumentRow(document)
    return JsonRow(document, in_order=state == _STORED)
