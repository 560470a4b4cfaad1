"""Writing the oplog: events as given, events made up, no-ops, and a rolled-over oplog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bson import ObjectId
from bson.timestamp import Timestamp

from . import events
from .loop_thread import LoopThread
from .oplog import live_collections
from .server import Server

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
        """Write one event and return its token.

        `_id` and `clusterTime` are made unless given. `namespace` routes an event without `ns`
        (or elsewhere); an event with neither goes to every stream. `omit` names fields that the
        client never sees, such as an `_id` that a pipeline projects away.
        """
        return self._call(lambda: self._server.oplog.append(event, namespace=namespace, omit=omit))

    def extend(
        self, several: Iterable[Mapping[str, Any]], *, namespace: str | None = None
    ) -> list[Token]:
        """Write many events at once."""
        given = list(several)
        return self._call(
            lambda: [self._server.oplog.append(e, namespace=namespace) for e in given]
        )

    def append_raw(self, encoded: Sequence[bytes], *, namespace: str | None = None) -> None:
        """Write many encoded events as they are, for speed; each begins with its `_id`.

        They go to every stream unless `namespace` is given, and end none.
        """
        self._call(lambda: self._server.oplog.append_raw(encoded, namespace))

    def append_fragments(
        self, parts: Sequence[Mapping[str, Any]], *, namespace: str | None = None
    ) -> list[Token]:
        """Write the parts of one split event: a token each, `splitEvent` added, one cluster time.

        Only the first part shows `clusterTime`, unless a part brings its own.
        """

        def write() -> list[Token]:
            time = self._server.oplog.next_time
            tokens = []
            for number, part in enumerate(events.fragments(parts)):
                hidden = () if number == 0 or "clusterTime" in part else ("clusterTime",)
                stamped = {"clusterTime": time, **part}
                tokens.append(self._server.oplog.append(stamped, namespace=namespace, omit=hidden))
            return tokens

        return self._call(write)

    def insert(self, namespace: str, document: Mapping[str, Any] | None = None) -> Token:
        """Write an insert; the document gets an `_id` if it has none."""
        return self.append(events.insert(namespace, {"_id": ObjectId(), **(document or {})}))

    def insert_many(self, namespace: str, ids: Iterable[Any]) -> list[Token]:
        """Write one insert of `{_id: …}` for each id, at once."""
        return self.extend([events.insert(namespace, {"_id": key}) for key in ids])

    def replace(self, namespace: str, document: Mapping[str, Any]) -> Token:
        """Write a replace."""
        return self.append(events.replace(namespace, document))

    def update(
        self,
        namespace: str,
        key: Any,
        updated: Mapping[str, Any],
        removed: Iterable[str] = (),
        *,
        full_document: Mapping[str, Any] | None = None,
    ) -> Token:
        """Write an update of the document with the `_id` key."""
        event = events.update(namespace, key, updated, removed, full_document=full_document)
        return self.append(event)

    def delete(self, namespace: str, key: Any) -> Token:
        """Write a delete."""
        return self.append(events.delete(namespace, key))

    def drop(self, namespace: str) -> Token:
        """Write a drop; streams of the collection get an invalidate after it."""
        return self.append(events.drop(namespace))

    def rename(self, namespace: str, to: str) -> Token:
        """Write a rename; streams of either collection get an invalidate after it."""
        return self.append(events.rename(namespace, to))

    def drop_database(self, database: str) -> Token:
        """Write a drop of each live collection, then the dropDatabase."""

        def write() -> Token:
            oplog = self._server.oplog
            for collection in live_collections(oplog.entries, database):
                oplog.append(events.drop(f"{database}.{collection}"))
            return oplog.append(events.drop_database(database))

        return self._call(write)

    def invalidate(self, namespace: str | None = None) -> Token:
        """Write a bare invalidate for the streams of exactly this scope (None: for all)."""
        return self.append(events.invalidate(), namespace=namespace)

    def noop(self, seconds: int = 1) -> Timestamp:
        """Let cluster time pass without an event; returns the new time. 0: the next increment."""

        def pass_time() -> Timestamp:
            self._server.oplog.noop(seconds)
            return self._server.oplog.now

        return self._call(pass_time)

    def truncate_oplog(self, keep: int = 0) -> None:
        """Lose all but the last `keep` entries: older start points and cursors get a 286."""

        def truncate() -> None:
            self._server.oplog.truncate(keep)
            self._server.oplog.wake()

        self._call(truncate)

    @property
    def cluster_time(self) -> Timestamp:
        """The server's time now."""
        return self._call(lambda: self._server.oplog.now)

    def _call(self, function: Callable[[], T]) -> T:
        return self._thread.call(function)
