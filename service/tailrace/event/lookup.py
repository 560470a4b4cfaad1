"""Which documents the updates of a reply need, and the reply with them.

A document is put where mongod puts one that it looks up itself: before the namespace
(:mod:`tailrace.event.layout`). Nothing is decoded. Keys that the server takes as equal are asked
for once (:func:`tailrace.event.document_key.identity`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tailrace.event import bson
from tailrace.event.bson import elements, encoded, spans, string_at, walk
from tailrace.event.document_key import identity
from tailrace.event.found import Found
from tailrace.event.layout import DOCUMENT_KEY, FULL_DOCUMENT, NAMESPACE, OPERATION, TOKEN, parts
from tailrace.event.memo import Memo

UPDATE = "update"
"""The one operation whose event does not have the document anyway."""

_UPDATE = UPDATE.encode()
_BEFORE_KEY = len(b"\x03ns\0") + len(b"\x03documentKey\0")
_DOCUMENT, _NO_DOCUMENT = b"\x03fullDocument\0", b"\x0afullDocument\0"
_ID = b"_id\0"
_ID_OF_OBJECT = b"%c%b" % (bson.OBJECT_ID, _ID)
_OBJECT_ID_BYTES = len(_ID_OF_OBJECT) + 12
_length = Struct("<i").pack

# mongod, src/mongo/db/pipeline/resume_token.cpp: behind the time stand the token's version, its
# type, the number in the transaction, whether it is an invalidate's (6E: no), and the collection's
# UUID as binary (5A) of 16 bytes (10) of the subtype 4.
_FROM_TIME = len(b"\0\0\0\0\x02_data\0\0\0\0\0") + len("82") + 16
_UUID_WITHIN = _FROM_TIME + 64
_uuid = re.compile(rb"2B[0-9A-F]{2}[0-9A-F]{2,20}?6[EF]5A1004([0-9A-F]{32})").match


class Collection(NamedTuple):
    """Where a document is looked up. The UUID is ``None`` where the event's token tells none."""

    database: str
    name: str
    uuid: bytes | None


@dataclass(slots=True)
class Window:
    """The events from ``first`` until before ``behind``, and the ``keys`` that they need.

    The keys are documents, by collection and :func:`identity`. ``updates`` are by the number of
    their event: where the document belongs, its collection and its identity.
    """

    first: int
    behind: int
    keys: dict[Collection, dict[bytes, bytes]] = field(default_factory=dict)
    updates: dict[int, tuple[int, Collection, bytes]] = field(default_factory=dict)


Documents = Mapping[Collection, Mapping[bytes, bytes]]
"""What was found, by collection and :func:`identity`."""


def window(
    buffer: bytes, bounds: Sequence[int], first: int, most_keys: int, most_bytes: int
) -> Window:
    """The events from ``first`` on that need so many keys, of so many bytes, at the most.

    Events that a pipeline has left without namespace or document key need none.
    """
    found = Window(first, len(bounds) // 2)
    keys, updates = found.keys, found.updates
    count = size = 0
    for number in range(first, found.behind):
        start = bounds[2 * number]
        event = parts(buffer, start)
        key, namespace = event[DOCUMENT_KEY], event[NAMESPACE]
        if event[OPERATION] != _UPDATE or key < 0 or not namespace or event[FULL_DOCUMENT] >= 0:
            continue
        token = event[TOKEN]
        collection = _collections[namespace, buffer[token + _FROM_TIME : token + _UUID_WITHIN]]
        if collection is None:
            continue
        raw = buffer[key : event[DOCUMENT_KEY + 1]]
        name = raw[4:-1]
        if len(raw) != _OBJECT_ID_BYTES + 5 or not name.startswith(_ID_OF_OBJECT):
            name = identity(raw, 0)
        wanted = keys.get(collection)
        if wanted is None:
            wanted = keys[collection] = {}
        known = wanted.get(name)
        if known is None:
            if count >= most_keys or (count and size + len(raw) > most_bytes):
                found.behind = number
                break
            wanted[name] = raw
            count, size = count + 1, size + len(raw)
        elif known != raw and _several(raw):
            # Of one `_id` on two shards, or under another shard key: each answer is of one key.
            found.behind = number
            break
        at = key - _BEFORE_KEY - len(namespace) if event[0] >= 0 else _namespace_at(buffer, start)
        updates[number] = at, collection, name
    return found


def filter_of(keys: Sequence[bytes]) -> bytes:
    """The filter of a find for documents with these keys, as BSON: by ``_id``, or the whole key."""
    if any(map(_several, keys)):
        return encoded(_array(b"$or", [(b"\x03", key) for key in keys]))
    ids = _array(b"$in", [_id(key) for key in keys])
    return encoded(b"\x03_id\0" + encoded(ids))


def by_identity(found: Found) -> dict[bytes, bytes]:
    """The documents that were found."""
    documents: dict[bytes, bytes] = {}
    buffer, each = found.buffer, iter(found.bounds)
    for begin, end in zip(each, each, strict=True):
        name = buffer[begin + 4 : begin + 4 + _OBJECT_ID_BYTES]
        if not name.startswith(_ID_OF_OBJECT):
            name = identity(buffer, begin)
        documents[name] = buffer[begin:end]
    return documents


def fill(
    buffer: bytes, bounds: Sequence[int], window: Window, documents: Documents, most_bytes: int
) -> tuple[bytes, list[int], int]:
    """Buffer and bounds of the window's events with their documents, and how far that goes.

    It ends before the event that would make it more than ``most_bytes``, but has one at the least.
    What is not among the documents is gone.
    """
    pieces: list[bytes] = []
    filled: list[int] = []
    append, size, updates = filled.append, 0, window.updates
    for number in range(window.first, window.behind):
        begin, end = bounds[2 * number], bounds[2 * number + 1]
        update = updates.get(number)
        if update is None:
            more = end - begin
            event: tuple[bytes, ...] = (buffer[begin:end],)
        else:
            at, collection, name = update
            document = documents[collection].get(name, b"")
            more = end - begin + len(_DOCUMENT) + len(document)
            event = (
                _length(more), buffer[begin + 4 : at], _DOCUMENT if document else _NO_DOCUMENT,
                document, buffer[at:end],
            )  # fmt: skip
        if size + more > most_bytes and size:
            return b"".join(pieces), filled, number
        pieces += event
        append(size)
        size += more
        append(size)
    return b"".join(pieces), filled, window.behind


def _named(key: tuple[bytes, bytes]) -> Collection | None:
    """The collection of a namespace and of what stands behind the time in a token."""
    namespace, token = key
    fields = elements(namespace, 0)
    (kind, database), (other, name) = (fields.get(each, (0, 0)) for each in (b"db", b"coll"))
    if kind != bson.STRING or other != bson.STRING:
        return None
    match = _uuid(token)
    uuid = bytes.fromhex(match[1].decode()) if match else None
    return Collection(string_at(namespace, database), string_at(namespace, name), uuid)


_collections: Memo[tuple[bytes, bytes], Collection | None] = Memo(_named)


def _namespace_at(buffer: bytes, start: int) -> int:
    """Where the namespace begins in an event of another order than mongod's."""
    return spans(buffer, start)[b"ns"][1]


def _several(key: bytes) -> bool:
    """Whether a document key has more than ``_id``: the collection is sharded."""
    if len(key) == _OBJECT_ID_BYTES + 5 and key.startswith(_ID_OF_OBJECT, 4):
        return False
    return len([*walk(key, 0)]) > 1 or b"_id" not in elements(key, 0)


def _id(key: bytes) -> tuple[bytes, bytes]:
    """Type and value of the ``_id`` of a document key that has nothing else."""
    return key[4:5], key[5 + len(_ID) : -1]


def _array(name: bytes, values: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The element of that name, an array of values, each with its type."""
    pieces: list[bytes] = []
    for number, (kind, value) in enumerate(values):
        pieces += kind, b"%d\0" % number, value
    return b"\x04%b\0%b" % (name, encoded(b"".join(pieces)))
