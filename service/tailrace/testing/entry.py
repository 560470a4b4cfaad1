"""One entry of the in-memory oplog, and the change event that mongod makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import bson
from bson import Binary, Int64
from bson.timestamp import Timestamp

from tailrace.event import Namespace
from tailrace.event.bson import encoded

OF_DOCUMENTS = frozenset({"insert", "update", "replace", "delete"})
EXPANDED = frozenset(
    {
        "create",
        "createIndexes",
        "dropIndexes",
        "modify",
        "shardCollection",
        "refineCollectionShardKey",
        "reshardCollection",
    }
)
"""The operations that a stream shows only with ``showExpandedEvents``."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The session and number that all events of one transaction have."""

    lsid: Mapping[str, Any]
    number: int

    @classmethod
    def of(cls, number: int) -> "Transaction":
        """The transaction with this number, in the one session of the in-memory oplog."""
        return cls({"id": Binary(b"tailrace-testing", 4), "uid": bytes(32)}, number)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a stream asks for: the options of ``$changeStream`` that change an event."""

    full_document: bool = True
    """Updates have the document after the change, as it was then."""
    before_change: bool = False
    """Updates, replacements and deletes have the document before the change."""
    expanded: bool = False

    @classmethod
    def of_stage(cls, stage: Mapping[str, Any]) -> "Shown":
        """What the stage ``$changeStream`` asks for."""
        return cls(
            "fullDocument" in stage,
            "fullDocumentBeforeChange" in stage,
            bool(stage.get("showExpandedEvents")),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One change. ``before`` and ``after`` are BSON documents; ``key`` is the document's."""

    token: str
    time: Timestamp
    operation: str
    ns: Namespace
    uuid: bytes | None = None
    key: bytes | None = None
    before: bytes | None = None
    after: bytes | None = None
    update: Mapping[str, Any] | None = None
    description: Mapping[str, Any] | None = None
    to: Namespace | None = None
    transaction: Transaction | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which come last."""

    def event(self, shown: Shown) -> bytes:
        """The change event as BSON, in mongod's order of fields.

        Source: mongod 6.0, ChangeStreamDefaultEventTransformation::applyTransformation; compared
        with a real server by tests/contract/test_memory_stream.py.
        """
        parts: list[bytes] = []
        if self.to is not None:
            parts.append(_element("to", _named(self.to)))
        if self.transaction is not None:
            parts.append(_element("txnNumber", Int64(self.transaction.number)))
            parts.append(_element("lsid", self.transaction.lsid))
        parts.append(_element("_id", {"_data": self.token}))
        parts.append(_element("operationType", self.operation))
        parts.append(_element("clusterTime", self.time))
        if shown.expanded and self.uuid is not None:
            parts.append(_element("collectionUUID", Binary(self.uuid, 4)))
        parts.append(_element("wallTime", datetime.fromtimestamp(self.time.time, UTC)))
        if self.after is not None and (shown.full_document or self.operation != "update"):
            parts.append(_document("fullDocument", self.after))
        if self.operation != "invalidate":
            parts.append(_element("ns", _named(self.ns)))
        if self.key is not None:
            parts.append(_document("documentKey", self.key))
        if self.update is not None:
            parts.append(_element("updateDescription", self.update))
        if shown.expanded and self.description is not None:
            parts.append(_element("operationDescription", self.description))
        if shown.before_change and self.before is not None:
            parts.append(_document("fullDocumentBeforeChange", self.before))
        parts += [_element(name, value) for name, value in self.more.items()]
        return encoded(b"".join(parts))


def _named(ns: Namespace) -> dict[str, str]:
    return {"db": ns.db} if ns.coll is None else {"db": ns.db, "coll": ns.coll}


def _element(name: str, value: Any) -> bytes:
    """A field; ``bson.encode`` would move ``_id`` to the front of several."""
    return bson.encode({name: value})[4:-1]


def _document(name: str, raw: bytes) -> bytes:
    return b"\x03" + name.encode() + b"\0" + raw
