"""Statements of bulk writes, made of raw BSON: nothing is decoded, so nothing is lost.

    {q: {_id: …}, u: DOCUMENT, upsert: true}        {q: {_id: …}, limit: 1}

An ``_id`` that could be read as operators is compared by ``$eq``. The delete of a sharded document
spares a copy that has another shard key (:func:`of_shard_keys`): its document has moved.

A document that the server would not take as a replacement as it is (a field whose name begins with
``$``; a zero timestamp, which it would replace by its clock) is deleted and made again by a
pipeline that holds it as a literal. Where the old document is still there, mongod 6.0 fails on a
literal with repeated field names.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bson.raw_bson import RawBSONDocument

from tailrace.event import Namespace
from tailrace.event.bson import ARRAY, DOCUMENT, TIMESTAMP, encoded, walk
from tailrace.event.document_identity import ShardKey
from tailrace.event.document_key import equal_to, is_like_pattern
from tailrace.event.raw_fields import element
from tailrace.event.snapshot_events import document_id

MOST_STATEMENTS = 10_000
MOST_BYTES = 12 * 1024 * 1024
"""Of the statements in a command. One of at least one document may have 16 MiB and 16 KiB."""

_OBJECT_ID_KEY = 22
"""The bytes of a document with an ObjectId as ``_id`` and nothing else."""
_ZERO_TIME = re.compile(rb"\x11[^\0]*\0{9}").search
_UPSERT = b"\x08upsert\0\x01"
_ONE = b"\x10limit\0\x01\0\0\0"


Order = Literal["last", "anew", "stream"]
"""How the changes of a batch are made: the last of each document, or all in their order."""


class Change(NamedTuple):
    """What happens to one copy: its new document, or ``None`` if it is deleted.

    ``key`` is ``{_id: …}``; ``at`` is the index of the event in its batch. ``only_if``: what else a
    document must match to be deleted, as elements of a filter.
    """

    at: int
    key: bytes
    document: bytes | None
    only_if: bytes = b""


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """A bulk write to one collection. ``indices``: by statement, that of its event, or -1."""

    target: Namespace
    verb: Literal["update", "delete", "insert"]
    statements: list[bytes]
    indices: list[int]

    @property
    def body(self) -> dict[str, Any]:
        """The command as the driver takes it."""
        name = {"update": "updates", "delete": "deletes", "insert": "documents"}[self.verb]
        raw = [RawBSONDocument(statement) for statement in self.statements]
        return {self.verb: self.target.coll, name: raw, "ordered": True}


def key_of(document_key: bytes) -> bytes:
    """The part ``{_id: …}`` of a document key. Raises ``ValueError`` if it has none."""
    if len(document_key) == _OBJECT_ID_KEY and document_key.startswith(b"\x07_id\0", 4):
        return document_key
    return encoded(document_id(document_key, 0))


def changes(
    target: Namespace, wanted: Iterable[Change], *, order: Order = "last"
) -> Iterator[BulkWrite]:
    """The commands that make these changes of one collection.

    Deletes come first, so that a value of a unique index that one document loses is free for
    another one. ``order``: ``anew`` deletes every document first, for values that documents
    exchange; ``stream`` makes the changes one after another, which may be of one document.
    """
    if order == "stream":
        for change in wanted:
            yield from changes(target, [change], order="last")
        return
    deletes: list[tuple[int, bytes]] = []
    updates: list[tuple[int, bytes]] = []
    for index, key, document, only_if in wanted:
        literal = document is not None and _needs_literal(document)
        if document is None or order == "anew" or literal:
            deletes.append((index, deletion(key, only_if)))
        if document is not None:
            updates.append((index, _upsert(key, document, literal=literal)))
    yield from commands(target, "delete", deletes)
    yield from commands(target, "update", updates)


def commands(
    target: Namespace,
    verb: Literal["update", "delete", "insert"],
    statements: Iterable[tuple[int, bytes]],
) -> Iterator[BulkWrite]:
    """The statements, with the indices of their events, in as few commands as possible."""
    command, size = BulkWrite(target, verb, [], []), 0
    for index, raw in statements:
        size += len(raw)
        if command.statements and (size > MOST_BYTES or len(command.statements) >= MOST_STATEMENTS):
            yield command
            command, size = BulkWrite(target, verb, [], []), len(raw)
        command.statements.append(raw)
        command.indices.append(index)
    if command.statements:
        yield command


def insertions(
    target: Namespace, documents: Iterable[tuple[int, bytes]], *, again: bool
) -> Iterator[BulkWrite]:
    """The commands that insert documents. ``again``: those that are there stay as they are."""
    if not again:
        yield from commands(target, "insert", documents)
        return
    statements = (
        (at, encoded(_filter(key_of(raw)) + b"\x03u\0" + _unless_there(raw) + _UPSERT))
        for at, raw in documents
    )
    yield from commands(target, "update", statements)


def _unless_there(document: bytes) -> bytes:
    return encoded(b"\x03$setOnInsert\0" + document)


def deletion(key: bytes, only_if: bytes = b"") -> bytes:
    """The statement that deletes one document."""
    return encoded(_filter(key, only_if) + _ONE)


def of_shard_keys(keys: Iterable[ShardKey]) -> bytes:
    """``$or: […]`` for documents that have one of these shard keys, or lack a field of theirs."""
    choices: dict[bytes, None] = {}
    for key in keys:
        equal = [nested(path, _equal(value, len(path))) for path, value in key.items()]
        choices[encoded(b"".join(equal))] = None
        for path in key:
            choices[encoded(nested(path, encoded(b"\x08$exists\0\0")))] = None
    if not choices:
        return b""
    listed = [nested(b"%d" % number, choice) for number, choice in enumerate(choices)]
    return b"%c$or\0%b" % (ARRAY, encoded(b"".join(listed)))


def _filter(key: bytes, only_if: bytes = b"") -> bytes:
    """The element ``q``: the document with a key ``{_id: …}``, whose value is never a pattern."""
    if is_like_pattern(key):
        key = encoded(nested(b"_id", equal_to(key)))
    return nested(b"q", encoded(key[4:-1] + only_if) if only_if else key)


def _equal(field: bytes, name_bytes: int) -> bytes:
    """``{$eq: value}`` for the value of an element."""
    return encoded(field[:1] + b"$eq" + field[1 + name_bytes :])


def _upsert(key: bytes, document: bytes, *, literal: bool) -> bytes:
    if not literal:
        return encoded(_filter(key) + b"\x03u\0" + document + _UPSERT)
    stage = encoded(b"\x03$replaceWith\0" + encoded(b"\x03$literal\0" + document))
    return encoded(_filter(key) + b"\x04u\0" + encoded(b"\x030\0" + stage) + _UPSERT)


def _needs_literal(document: bytes) -> bool:
    # Most documents have neither of these bytes, which is the fastest search.
    if b"$" not in document and not (b"\x11" in document and _ZERO_TIME(document)):
        return False
    return any(
        name.startswith(b"$") or (kind == TIMESTAMP and not any(document[at:end]))
        for name, kind, at, end in walk(document, 0)
    )


def nested(name: bytes, document: bytes) -> bytes:
    """An element with a document."""
    return element(DOCUMENT, name, document)
