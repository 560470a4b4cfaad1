"""Change events as a server would send them, one after another in time."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from bson import Timestamp

_ABSENT = object()


class Stream:
    """Creates events with increasing times; ``at`` keeps one time for several events."""

    def __init__(self, database: str = "shop", seconds: int = 1_700_000_000) -> None:
        self.database = database
        self._times = itertools.count(1)
        self._tokens = itertools.count(1)
        self._seconds = seconds
        self._held: Timestamp | None = None

    def time(self) -> Timestamp:
        if self._held is not None:
            return self._held
        at = next(self._times)
        return Timestamp(self._seconds + at // 3, at)

    def event(self, operation: str, collection: str | None = None, **fields: Any) -> dict[str, Any]:
        ns = {"db": self.database} | ({"coll": collection} if collection is not None else {})
        return {
            "_id": {"_data": f"{next(self._tokens):08x}"},
            "operationType": operation,
            "clusterTime": self.time(),
            "ns": ns,
            **fields,
        }

    def insert(self, key: Any, collection: str = "orders", **document: Any) -> dict[str, Any]:
        whole = {"_id": key, **document}
        return self.event("insert", collection, documentKey={"_id": key}, fullDocument=whole)

    def replace(self, key: Any, collection: str = "orders", **document: Any) -> dict[str, Any]:
        return self.insert(key, collection, **document) | {"operationType": "replace"}

    def update(
        self,
        key: Any,
        collection: str = "orders",
        image: Any = _ABSENT,
        removed: list[str] | None = None,
        **updated: Any,
    ) -> dict[str, Any]:
        """An update. ``image``: the looked-up document or ``None``; by default no such field."""
        event = self.event(
            "update",
            collection,
            documentKey={"_id": key},
            updateDescription={
                "updatedFields": {name.replace("__", "."): v for name, v in updated.items()},
                "removedFields": removed or [],
                "truncatedArrays": [],
            },
        )
        if image is not _ABSENT:
            event["fullDocument"] = image
        return event

    def delete(self, key: Any, collection: str = "orders") -> dict[str, Any]:
        return self.event("delete", collection, documentKey={"_id": key})

    def read(self, key: Any, collection: str = "orders", **document: Any) -> dict[str, Any]:
        """A row: a document read by a snapshot."""
        identity = {"snapshot": "5f3a", "collection": collection, "_id": key}
        return self.insert(key, collection, **document) | {
            "_id": identity,
            "operationType": "read",
        }

    def snapshot(
        self,
        *rows: Callable[[], dict[str, Any]],
        collection: str | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
        **fields: Any,
    ) -> list[dict[str, Any]]:
        """A snapshot of the collection ``orders`` with these rows and other events.

        ``more`` are further collections with their states; with ``collection`` the scope has only
        one.
        """
        snapshot_fields = {"id": "5f3a", "mode": "gap", "filter": "", "began": self.time()}
        snapshot_fields["collections"] = [
            {"db": self.database, "coll": name, "uuid": "", "state": state, "documents": 1}
            for name, state in {"orders": "done", **more}.items()
        ]
        ns = {"db": self.database} | ({"coll": collection} if collection is not None else {})
        begin, end = (
            {
                "_id": {"snapshot": "5f3a", "event": operation},
                "operationType": operation,
                "ns": ns,
                "snapshot": snapshot_fields | fields,
            }
            for operation in ("snapshotBegin", "snapshotEnd")
        )
        return [
            begin | {"clusterTime": snapshot_fields["began"]},
            *(row() for row in rows),
            end | {"clusterTime": self.time()},
        ]

    def drop(self, collection: str = "orders") -> dict[str, Any]:
        return self.event("drop", collection)

    def drop_database(self) -> dict[str, Any]:
        return self.event("dropDatabase")

    def rename(self, collection: str, to: str) -> dict[str, Any]:
        return self.event("rename", collection, to={"db": self.database, "coll": to})

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All events in the block have one cluster time."""
        self._held = self.time()
        yield
        self._held = None
