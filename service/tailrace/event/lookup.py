"""Finds which documents the updates of a reply need, and inserts the documents into the reply.

A document is inserted where mongod puts a document that it looks up itself: before the namespace
(:mod:`tailrace.event.layout`). Nothing is decoded, except in sharded collections.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any, NamedTuple, Protocol, TypeAlias

from tailrace.event import bson
from tailrace.event.bson import elements, spans, string_at
from tailrace.event.change_event import ChangeEvent
from tailrace.event.document_key import id_alone, identity, is_object_id, shard_key
from tailrace.event.layout import (
    DOCUMENT_KEY,
    NAMESPACE,
    OPERATION,
    TOKEN,
    TYPE,
    parts,
)
from tailrace.event.memo import Memo
from tailrace.event.wanted_documents import WantedDocuments, WantedOne, WantedShardKey

UPDATE = "update"
"""The only operation whose events need a look-up: the others have the document, or none exists."""

_UPDATE = UPDATE.encode()
_BEFORE_KEY = len(b"\x03ns\0") + len(b"\x03documentKey\0")
_DOCUMENT, _NO_DOCUMENT = b"\x03fullDocument\0", b"\x0afullDocument\0"
_ID_OF_OBJECT = b"%c_id\0" % bson.OBJECT_ID
_OBJECT_ID_BYTES = len(_ID_OF_OBJECT) + 12
_OBJECT_ID_END = 4 + _OBJECT_ID_BYTES
_OPERATION_BYTES = len(TYPE) + 4 + len(_UPDATE) + 1
_length = Struct("<i").pack

# mongod, src/mongo/db/pipeline/resume_token.cpp: after the time come the token's version, its type,
# the number in the transaction, whether it is an invalidate's (6E: no), and the collection's UUID
# as binary (5A) of 16 bytes (10) with subtype 4.
_FROM_TIME = len(b"\0\0\0\0\x02_data\0\0\0\0\0") + len("82") + 16
_UUID_WITHIN = _FROM_TIME + 60
_uuid = re.compile(rb"[0-9A-F]{6,24}?6E5A1004([0-9A-F]{32})").match


class Collection(NamedTuple):
    """The collection of a look-up. The UUID is ``None`` if the event's token contains none."""

    database: str
    name: str
    uuid: bytes | None


class _Documents(Protocol):
    """Documents by what the events of a window say about them."""

    def get(self, wanted: Any, default: bytes, /) -> bytes: ...


@dataclass(slots=True)
class LookupWindow:
    """The events from ``first`` up to, but not including, ``end``, and what they need.

    ``updates`` has, for each event that needs a document: the offset at which to insert it, the
    documents of its collection, and which one it is; ``None`` for other events.
    """

    first: int
    end: int
    wanted: dict[Collection, WantedDocuments] = field(default_factory=dict)
    updates: list[tuple[int, _Documents, bytes | WantedOne] | None] = field(default_factory=list)


def window(
    buffer: bytes, bounds: Sequence[int], first: int, most_keys: int, most_bytes: int
) -> LookupWindow:
    """The events from ``first`` on that need at most ``most_keys`` keys, of ``most_bytes``.

    Events from which a pipeline removed the namespace or the document key need no document.
    """
    window = LookupWindow(first, first)
    append, like, count, size = window.updates.append, _UNLIKE, 0, 0
    read, same, at, name_at = like.read, like.same, 0, 0
    keys, documents = like.wanted.keys, like.wanted.documents
    key: bytes | None
    for start in bounds[2 * first :: 2]:
        try:
            seen = read(buffer, start)
        except error:  # beyond the end of the buffer
            seen = ()
        if seen == same:
            name, key = buffer[start + name_at : start + name_at + _OBJECT_ID_BYTES], None
            one = None
        else:
            update = _update(buffer, start)
            if update is None:
                append(None)
                continue
            name, key, like, one = update
            like.wanted = window.wanted.setdefault(like.collection, like.wanted)
            read, same, at, name_at = like.read, like.same, like.at, like.name_at
            keys, documents = like.wanted.keys, like.wanted.documents
        if not name:  # a pipeline removed the `_id` from the document key
            append((start + at, documents, name))
            continue
        known = keys.get(name, _UNKNOWN)
        if known is _UNKNOWN:
            if count >= most_keys or size > most_bytes:
                break
            keys[name] = key
            count += 1
            if key is not None:
                like.wanted.plain = False
                size += len(key)
        if one is None:
            append((start + at, documents, name))
        else:
            like.wanted.sharded = True
            append((start + at, like.wanted, (name, one)))
    window.end += len(window.updates)
    return window


def fill(
    buffer: bytes, bounds: Sequence[int], window: LookupWindow, most_bytes: int
) -> tuple[bytes, list[int]]:
    """Buffer and bounds of the window's next events with their documents; advances the window.

    Ends before the event that would exceed ``most_bytes``, but has at least one event. A document
    that was not found is gone.
    """
    pieces: list[bytes] = []
    filled: list[int] = []
    append, size = filled.append, 0
    pairs = iter(bounds[2 * window.first : 2 * window.end])
    for begin, end, update in zip(pairs, pairs, window.updates, strict=True):
        more = end - begin
        if update is None:
            event: tuple[bytes, ...] = (buffer[begin:end],)
        else:
            at, documents, name = update
            document = documents.get(name, b"")
            more += len(_DOCUMENT) + len(document)
            event = (
                _length(more), buffer[begin + 4 : at], _DOCUMENT if document else _NO_DOCUMENT,
                document, buffer[at:end],
            )  # fmt: skip
        if size + more > most_bytes and size:
            break
        pieces += event
        append(size)
        size += more
        append(size)
    del window.updates[: len(filled) // 2]
    window.first += len(filled) // 2
    return b"".join(pieces), filled


_Read: TypeAlias = Callable[[bytes, int], tuple[bytes, ...]]


@dataclass(slots=True)
class _Like:
    """What an update may have in common with the updates after it.

    ``read`` reads the parts that must be the ``same``: the collection's UUID, the operation, and
    everything from the namespace up to the value of the ``_id``, which is an ObjectId. ``at`` is
    the offset of the namespace, and ``name_at`` that of the ``_id``.
    """

    collection: Collection
    at: int
    name_at: int = 0
    wanted: WantedDocuments = field(default_factory=WantedDocuments)
    read: _Read = Struct("<").unpack_from
    same: tuple[bytes, ...] | None = None


_UNLIKE = _Like(Collection("", "", None), 0)
_UNKNOWN = b""


def _update(
    buffer: bytes, start: int
) -> tuple[bytes, bytes | None, _Like, WantedShardKey | None] | None:
    """What the event at ``start`` needs: identity and ``{_id: …}`` of a document, and what tells it
    from others in a sharded collection. ``None`` if it needs none."""
    event = parts(buffer, start)
    namespace, token, key = event[NAMESPACE], event[TOKEN], event[DOCUMENT_KEY]
    if event[OPERATION] != _UPDATE or key < 0 or not namespace:
        return None
    uuid = token + _FROM_TIME, token + _UUID_WITHIN
    collection = _collections[namespace, buffer[slice(*uuid)]]
    if collection is None:
        return None
    raw = buffer[key : event[DOCUMENT_KEY + 1]]
    if event[0] < 0:  # in another order than mongod's
        like = _Like(collection, spans(buffer, start)[b"ns"][1] - start)
        return _wanted(buffer, start, raw, like)
    at = key - _BEFORE_KEY - len(namespace)
    like = _Like(collection, at - start)
    if not is_object_id(raw):
        return _wanted(buffer, start, raw, like)
    token_end = event[TOKEN + 1]
    if uuid[1] <= token_end:
        after_operation = at - token_end - _OPERATION_BYTES
        names_size = key + 4 + len(_ID_OF_OBJECT) - at
        like.read = _readers[uuid[0] - start, token_end - uuid[1], after_operation, names_size]
        like.name_at, like.same = key + 4 - start, like.read(buffer, start)
    return raw[4:-1], None, like, None


def _wanted(
    buffer: bytes, start: int, key: bytes, like: _Like
) -> tuple[bytes, bytes | None, _Like, WantedShardKey | None]:
    alone = id_alone(key)
    one = None
    if shard_key(key):
        one = WantedShardKey.of(ChangeEvent(buffer, start))
    return identity(key, 0), None if is_object_id(alone) else alone, like, one


def _reader(sizes: tuple[int, int, int, int]) -> _Read:
    before_uuid, after_uuid, after_operation, names_size = sizes
    return Struct(
        f"<{before_uuid}x{_UUID_WITHIN - _FROM_TIME}s{after_uuid}x"
        f"{_OPERATION_BYTES}s{after_operation}x{names_size}s"
    ).unpack_from


_readers: Memo[tuple[int, int, int, int], _Read] = Memo(_reader)


def _named(key: tuple[bytes, bytes]) -> Collection | None:
    """The collection from a namespace and the part of a token after its time."""
    namespace, token = key
    fields = elements(namespace, 0)
    (kind, database), (other, name) = (fields.get(each, (0, 0)) for each in (b"db", b"coll"))
    if kind != bson.STRING or other != bson.STRING:
        return None
    match = _uuid(token)
    uuid = bytes.fromhex(match[1].decode()) if match else None
    return Collection(string_at(namespace, database), string_at(namespace, name), uuid)


_collections: Memo[tuple[bytes, bytes], Collection | None] = Memo(_named)
