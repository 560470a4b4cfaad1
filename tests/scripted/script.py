"""Writes the oplog: given events, generated events, no-ops, and a truncation."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import bson
from bson import ObjectId
from bson.timestamp import Timestamp

from tailrace.testing.tokens import event_token

from .loop_thread import LoopThread
from .scopes import Namespace
from .server import Server
from .sharded import ShardedCollection

T = TypeVar("T")
Token = dict[str, Any]


class Script:
    """The part of `ScriptedSet` that writes. Namespaces are text: `db.coll`, or `db` alone."""

    _thread: LoopThread
    _server: Server

    def append(
        self,
        event: Mapping[str, Any],
        *,
        namespace: str | None = None,
        omit: Collection[str] = (),
    ) -> Token:
        """Writes one event and returns its token.

        `_id` and `clusterTime` are generated unless given. `namespace` routes an event that has no
        `ns`, or routes it elsewhere; an event with neither goes to every stream. `omit` names
        fields that the client never sees, such as an `_id` that a pipeline projects away.
        """
        return self._call(lambda: self._server.oplog.append(event, namespace=namespace, omit=omit))

    def append_raw(self, encoded: Sequence[bytes]) -> None:
        """Writes many encoded events as they are, for every stream; each begins with its `_id`."""
        self._call(lambda: self._server.oplog.append_raw(encoded))

    def append_fragments(
        self, parts: Sequence[Mapping[str, Any]], *, namespace: str | None = None
    ) -> list[Token]:
        """Writes the fragments of one split event. Each gets a token and `splitEvent`.

        All have the same cluster time, but only the first fragment shows `clusterTime`.
        """

        def write() -> list[Token]:
            time = self._server.oplog.next_time
            tokens = []
            for number, part in enumerate(parts, start=1):
                split = {"fragment": number, "of": len(parts)}
                shown = {"splitEvent": split, "clusterTime": time, **part}
                omit = () if number == 1 else ("clusterTime",)
                tokens.append(self._server.oplog.append(shown, namespace=namespace, omit=omit))
            return tokens

        return self._call(write)

    def insert(self, namespace: str, document: Mapping[str, Any] | None = None) -> Token:
        """Writes an insert; a document without an `_id` gets one."""
        return self.append(_insert(namespace, {"_id": ObjectId(), **(document or {})}))

    def insert_many(self, namespace: str, ids: Iterable[Any]) -> list[Token]:
        """Writes one insert of `{_id: …}` for each id, all at the same moment."""
        events = [_insert(namespace, {"_id": key}) for key in ids]
        return self._call(lambda: [self._server.oplog.append(event) for event in events])

    def send(self, collection: ShardedCollection) -> int:
        """Writes a sharded collection's events, each at a time of its own; returns how many."""
        events = [event for group in collection.sent for event in group]
        for event in events:
            self.append({k: v for k, v in event.items() if k not in ("_id", "clusterTime")})
        return len(events)

    def drop(self, namespace: str) -> Token:
        """Writes a drop; streams of the collection get an invalidate after it."""
        return self.append({"operationType": "drop", "ns": _ns(namespace)})

    def rename(self, namespace: str, to: str) -> Token:
        """Writes a rename; streams of either collection get an invalidate after it."""
        return self.append({"operationType": "rename", "ns": _ns(namespace), "to": _ns(to)})

    def drop_database(self, database: str, *collections: str) -> Token:
        """Writes a drop of each collection, then the dropDatabase."""
        for collection in collections:
            self.drop(f"{database}.{collection}")
        return self.append({"operationType": "dropDatabase", "ns": {"db": database}})

    def invalidate(self, namespace: str) -> Token:
        """Writes an invalidate for the streams of exactly this scope, without a cause."""
        return self.append({"operationType": "invalidate"}, namespace=namespace)

    def noop(self, seconds: int = 1) -> Timestamp:
        """Advances cluster time without an event; returns the new time. 0: the next increment."""

        def pass_time() -> Timestamp:
            self._server.oplog.noop(seconds)
            return self._server.oplog.now

        return self._call(pass_time)

    def truncate_oplog(self) -> None:
        """Removes all entries: older start points and cursors get error 286."""

        def truncate() -> None:
            self._server.oplog.truncate()
            self._server.oplog.wake()

        self._call(truncate)

    @property
    def cluster_time(self) -> Timestamp:
        """The server's current time."""
        return self._call(lambda: self._server.oplog.now)

    def _call(self, function: Callable[[], T]) -> T:
        return self._thread.call(function)


def encoded_inserts(namespace: str, count: int, size: int, start: Timestamp) -> list[bytes]:
    """`count` inserts of about `size` bytes each, with consecutive times after `start`."""

    def encoded(number: int, padding: int) -> bytes:
        time = Timestamp(start.time, start.inc + 1 + number)
        event = _insert(namespace, {"_id": number, "payload": "x" * padding})
        token = event_token(time, 0, namespace, number)
        return bson.encode({"_id": token, "clusterTime": time, **event})

    padding = max(0, size - len(encoded(0, 0)))
    return [encoded(number, padding) for number in range(count)]


def _insert(namespace: str, document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationType": "insert",
        "fullDocument": dict(document),
        "ns": _ns(namespace),
        "documentKey": {"_id": document["_id"]},
    }


def _ns(namespace: str) -> dict[str, str | None]:
    where = Namespace.parse(namespace)
    return {"db": where.database, "coll": where.collection}
