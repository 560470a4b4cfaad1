"""Change events as mongod words them, before the oplog gives them a token and a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import bson
from bson.timestamp import Timestamp

from .scopes import Namespace
from .tokens import event_token

Event = dict[str, Any]


def insert(namespace: str, document: Mapping[str, Any]) -> Event:
    """A document came to be."""
    return {
        "operationType": "insert",
        "fullDocument": dict(document),
        "ns": _ns(namespace),
        "documentKey": {"_id": document["_id"]},
    }


def replace(namespace: str, document: Mapping[str, Any]) -> Event:
    """A document was replaced as a whole."""
    return {**insert(namespace, document), "operationType": "replace"}


def update(
    namespace: str,
    key: Any,
    updated: Mapping[str, Any],
    removed: Iterable[str] = (),
    *,
    full_document: Mapping[str, Any] | None = None,
) -> Event:
    """Fields of a document changed; `full_document` is what updateLookup would have found."""
    event: Event = {
        "operationType": "update",
        "ns": _ns(namespace),
        "documentKey": {"_id": key},
        "updateDescription": {
            "updatedFields": dict(updated),
            "removedFields": list(removed),
            "truncatedArrays": [],
        },
    }
    if full_document is not None:
        event["fullDocument"] = dict(full_document)
    return event


def delete(namespace: str, key: Any) -> Event:
    """A document is gone."""
    return {"operationType": "delete", "ns": _ns(namespace), "documentKey": {"_id": key}}


def drop(namespace: str) -> Event:
    """A collection is gone."""
    return {"operationType": "drop", "ns": _ns(namespace)}


def rename(namespace: str, to: str) -> Event:
    """A collection has a new name."""
    return {"operationType": "rename", "ns": _ns(namespace), "to": _ns(to)}


def drop_database(database: str) -> Event:
    """A database is gone."""
    return {"operationType": "dropDatabase", "ns": {"db": database}}


def invalidate() -> Event:
    """The stream is at its end. It bears no namespace: route it by hand."""
    return {"operationType": "invalidate"}


def fragments(parts: Sequence[Mapping[str, Any]]) -> list[Event]:
    """The parts of one event as `$changeStreamSplitLargeEvent` hands them out."""
    return [
        {"splitEvent": {"fragment": number, "of": len(parts)}, **part}
        for number, part in enumerate(parts, start=1)
    ]


def encoded_inserts(namespace: str, count: int, size: int, start: Timestamp) -> list[bytes]:
    """That many inserts of about `size` bytes each, with the times after `start`."""
    empty = len(_encoded_insert(namespace, 0, 0, start))
    padding = max(0, size - empty)
    return [_encoded_insert(namespace, number, padding, start) for number in range(count)]


def _ns(namespace: str) -> dict[str, str]:
    where = Namespace.parse(namespace)
    if where.collection is None:
        raise ValueError(f"{namespace!r} names a database; a collection is needed, as in db.coll")
    return {"db": where.database, "coll": where.collection}


def _encoded_insert(namespace: str, number: int, padding: int, start: Timestamp) -> bytes:
    time = Timestamp(start.time, start.inc + 1 + number)
    event = insert(namespace, {"_id": number, "payload": "x" * padding})
    token = event_token(time, 0, namespace, number)
    return bson.encode({"_id": token, "clusterTime": time, **event})
