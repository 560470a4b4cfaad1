"""A sharded collection: its documents, and the events that mongos sends for its changes.

Every fact is from mongod's source, with the file beside it (branch v8.0, and 6.0 where it says so).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import bson
from bson import Int64, Timestamp

Document = dict[str, Any]
Event = dict[str, Any]
SHARDS = {"eu": 0, "uk": 0, "us": 1, "ap": 2, None: 0}
"""The shard of each value of the shard key ``region``; ``None``: the field is missing."""


@dataclass
class ShardedCollection:
    """The collection ``shop.orders`` with the shard key ``{path: 1}``.

    ``version``: that of the resume tokens, 1 as up to 6.0 or 2. ``sent``: the events of each write
    or transaction, in order. ``images``: as ``full_document: whenAvailable`` sends documents.
    """

    version: int = 1
    path: str = "region"
    images: bool = True
    seconds: int = 1_700_000_000
    documents: dict[tuple[Any, Any], Document] = field(default_factory=dict)
    sent: list[list[Event]] = field(default_factory=list)
    on_send: Callable[[], None] = lambda: None
    _open: list[tuple[int, Event]] | None = None
    _times: Iterator[int] = field(default_factory=lambda: count(1))

    def living(self) -> dict[Any, Document]:
        """The documents by ``_id``, of which each has one."""
        return {document["_id"]: document for document in self.documents.values()}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One transaction. Its events have one time, and the session and the number in common."""
        self._open = []
        yield
        changes, self._open = self._open, None
        self._send(changes, lsid={"id": bson.Binary(bytes(16), 4)}, txnNumber=Int64(1))

    def insert(self, identity: Any, region: str | None = None, **more: Any) -> None:
        document = {"_id": identity, **self._placed(region), **more}
        self._write([self._inserted(document)])

    def update(self, identity: Any, **fields: Any) -> None:
        """``$set``; ``region`` stands for the shard key."""
        before = self.living()[identity]
        after = {**before, **{k: v for k, v in fields.items() if k != "region"}}
        updated = {k: v for k, v in fields.items() if k != "region"}
        if "region" in fields:
            after |= self._placed(fields["region"])
            updated[self.path] = fields["region"]
        described = {"updatedFields": updated, "removedFields": [], "truncatedArrays": []}
        self._changed(before, after, operationType="update", updateDescription=described)

    def replace(self, identity: Any, region: str | None = None, **more: Any) -> None:
        after = {"_id": identity, **self._placed(region), **more}
        self._changed(self.living()[identity], after, operationType="replace")

    def delete(self, identity: Any) -> None:
        self._write([self._deleted(self.living()[identity])])

    # --- what the server does -----------------------------------------------------------------

    def _changed(self, before: Document, after: Document, **event: Any) -> None:
        """An update is one event, with the key of the old document, unless the document moves.

        ``src/mongo/db/exec/classic/update_stage.cpp``, ``transformAndUpdate``:
        ``args.criteria = collDesc.extractDocumentKey(oldObjValue)``. In 6.0
        (``src/mongo/db/exec/update_stage.cpp``) the argument is ``newObj``, which has at that line
        still the value ``oldObj.value()`` that it was declared with.

        If its shard does not own the new key, mongos deletes and inserts in one transaction
        (``updateShardKeyForDocument``,
        ``src/mongo/s/commands/document_shard_key_update_util.cpp``).
        """
        if self._shard(before) != self._shard(after):
            self._write([self._deleted(before), self._inserted(after)])
            return
        key = self.document_key(before)
        del self.documents[key["_id"], self._shard(before)]
        self.documents[key["_id"], self._shard(after)] = after
        shown = (
            {"fullDocument": after} if self.images or event["operationType"] == "replace" else {}
        )
        self._write([(self._shard(after), {**event, "documentKey": key, **shown})])

    def _inserted(self, document: Document) -> tuple[int, Event]:
        self.documents[document["_id"], self._shard(document)] = document
        key = self.document_key(document)
        event = {"operationType": "insert", "documentKey": key, "fullDocument": document}
        return self._shard(document), event

    def _deleted(self, document: Document) -> tuple[int, Event]:
        del self.documents[document["_id"], self._shard(document)]
        event = {"operationType": "delete", "documentKey": self.document_key(document)}
        return self._shard(document), event

    def document_key(self, document: Mapping[str, Any]) -> Document:
        """The shard key's fields that the document has, then ``_id``.

        ``src/mongo/db/s/collection_metadata.cpp``, ``extractDocumentKey``.
        """
        region = self._region(document)
        return {} | ({self.path: region} if region is not None else {}) | {"_id": document["_id"]}

    def _write(self, changes: list[tuple[int, Event]]) -> None:
        if self._open is not None:
            self._open += changes
        elif len(changes) > 1:
            with self.transaction():
                self._write(changes)
        else:
            self._send(changes)

    def _send(self, changes: list[tuple[int, Event]], **fields: Any) -> None:
        """Sends events of one time in the order of their tokens.

        ``src/mongo/db/pipeline/resume_token.cpp``: ``ResumeToken(const ResumeTokenData&)`` encodes
        clusterTime, version, tokenType, txnOpIndex, fromInvalidate, uuid, eventIdentifier, and
        ``ResumeTokenData(…)`` makes the last one of the document key alone (version 1), or of the
        operation's name and the document key (version 2).
        """
        at = next(self._times)
        time = Timestamp(self.seconds + at // 3, at)
        numbers = {shard: count() for shard, _ in changes}
        by_token = sorted(
            ((next(numbers[shard]), self._identifier(event), event) for shard, event in changes),
            key=lambda each: each[:2],
        )
        self.sent.append(
            [
                {
                    "_id": {"_data": f"{at:08x}{number:04x}{place:04x}"},
                    "clusterTime": time,
                    "ns": {"db": "shop", "coll": "orders"},
                    **fields,
                    **event,
                }
                for place, (number, _, event) in enumerate(by_token)
            ]
        )
        self.on_send()

    def _identifier(self, event: Event) -> tuple[str, ...]:
        key = tuple(map(str, event["documentKey"].values()))
        return (event["operationType"], *key) if self.version == 2 else key

    # --- shards -------------------------------------------------------------------------------

    def _placed(self, region: str | None) -> Document:
        placed: Any = region
        for part in reversed(self.path.split(".")):
            placed = {part: placed}
        return {} if region is None else placed

    def _region(self, document: Mapping[str, Any]) -> Any:
        value: Any = document
        for part in self.path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _shard(self, document: Mapping[str, Any]) -> int:
        return SHARDS[self._region(document)]


Sequence = Callable[[ShardedCollection, Any], None]


def _moves(*regions: str | None) -> Sequence:
    def run(on: ShardedCollection, k: Any) -> None:
        on.insert(k, regions[0], n=0)
        for number, region in enumerate(regions[1:], 1):
            on.update(k, region=region, n=number)

    return run


def _then(first: Sequence, *writes: Sequence) -> Sequence:
    def run(on: ShardedCollection, k: Any) -> None:
        for write in (first, *writes):
            write(on, k)

    return run


def _together(*writes: Sequence) -> Sequence:
    def run(on: ShardedCollection, k: Any) -> None:
        with on.transaction():
            for write in writes:
                write(on, k)

    return run


def _insert(region: str) -> Sequence:
    return lambda on, k: on.insert(k, region, n=-1)


def _to(region: str) -> Sequence:
    return lambda on, k: on.update(k, region=region)


def _replaced(region: str | None) -> Sequence:
    return lambda on, k: on.replace(k, region, m=7)


def _set(on: ShardedCollection, k: Any) -> None:
    on.update(k, x=5)


def _delete(on: ShardedCollection, k: Any) -> None:
    on.delete(k)


SEQUENCES: Mapping[str, Sequence] = {
    "inserted": _insert("eu"),
    "updated": _then(_insert("us"), _set),
    "deleted": _then(_insert("us"), _delete),
    "changed in its shard": _moves("eu", "uk"),
    "changed in its shard, deleted": _then(_moves("eu", "uk"), _delete),
    "changed in its shard, updated": _then(_moves("eu", "uk"), _set),
    "changed in its shard and back": _moves("eu", "uk", "eu"),
    "changed in its shard and back, deleted": _then(_moves("eu", "uk", "eu"), _delete),
    "replaced in its shard": _then(_insert("eu"), _replaced("uk")),
    "replaced in its shard, deleted": _then(_insert("eu"), _replaced("uk"), _delete),
    "replaced without shard key, deleted": _then(_insert("eu"), _replaced(None), _delete),
    "replaced on another shard": _then(_insert("us"), _replaced("eu")),
    "moved down": _moves("us", "eu"),
    "moved up": _moves("eu", "us"),
    "moved down, deleted": _then(_moves("us", "eu"), _delete),
    "moved up, deleted": _then(_moves("eu", "us"), _delete),
    "moved down, updated": _then(_moves("us", "eu"), _set),
    "moved down, deleted, inserted": _then(_moves("us", "eu"), _delete, _insert("us")),
    "moved there and back": _moves("us", "eu", "us"),
    "moved there and back, deleted": _then(_moves("us", "eu", "us"), _delete),
    "moved back and there": _moves("eu", "us", "eu"),
    "moved over three shards": _moves("us", "eu", "ap"),
    "moved over three shards, deleted": _then(_moves("us", "eu", "ap"), _delete),
    "changed, then moved": _moves("eu", "uk", "us"),
    "changed, then moved down": _moves("uk", "eu", "ap"),
    "moved, then changed": _moves("us", "eu", "uk"),
    "moved, then changed, deleted": _then(_moves("us", "eu", "uk"), _delete),
    "a missing shard key is set": _moves(None, "eu"),
    "a missing shard key is set, and moves": _moves(None, "us"),
    "updated and moved in a transaction": _then(_insert("us"), _together(_set, _to("eu"))),
    "moved and updated in a transaction": _then(_insert("us"), _together(_to("eu"), _set)),
    "moved and deleted in a transaction": _then(_insert("us"), _together(_to("eu"), _delete)),
    "updated, moved, deleted in one": _then(_insert("us"), _together(_set, _to("eu"), _delete)),
    "inserted and moved in a transaction": _together(_insert("us"), _to("eu")),
    "inserted, moved, updated in one": _together(_insert("us"), _to("eu"), _set),
    "moved there and back in one": _then(_insert("us"), _together(_to("eu"), _to("us"))),
    "moved back and there in one": _then(_insert("eu"), _together(_to("us"), _to("eu"))),
    "moved twice in one": _then(_insert("us"), _together(_to("eu"), _to("ap"))),
    "changed and moved in one": _then(_insert("eu"), _together(_to("uk"), _to("ap"))),
    "deleted, inserted elsewhere in one": _then(_insert("us"), _together(_delete, _insert("eu"))),
}
"""What may happen to a document, by name."""

IN_ONE_BATCH = ("in one", "in a transaction")
"""In the names of those whose transactions do more than one thing to a document: an event alone
does not tell then what comes of it."""
