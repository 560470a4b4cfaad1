"""Change events as columns: what the server sent, cut at its parts and not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import error
from typing import Any

from tailrace.event.bson import (
    DATE,
    DOCUMENT,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    UINT64,
    encoded,
    malformed,
    walk,
)
from tailrace.event.extended_json import to_json
from tailrace.event.layout import ABSENT, FIELDS, NAMESPACE, OPERATION, WALL_TIME, offsets

NAMES = (
    "cluster_seconds",
    "cluster_increment",
    "token",
    "wall_time",
    "operation",
    "database",
    "collection",
    "document_key",
    "full_document",
    "full_document_before_change",
    "update_description",
    "extra",
)
"""The columns, in their order. ``extra`` has what no other column has, as a document."""

_DOCUMENTS = NAMES[7:]

Columns = dict[str, Sequence[int | bytes | None]]
"""By name, in the order of :data:`NAMES`, a value for each event: text as its UTF-8."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers fail on timestamps beyond them."""

_Namespaces = dict[bytes, tuple[bytes | None, bytes | None, bool]]
"""A namespace's document to its names, and whether they say all of it: streams repeat a few."""

# Bytes of each part beside its value: its type, its name and a zero.
_NAME_BYTES = [len(name) + 2 for name, _ in FIELDS]
_TOKEN, _OPERATION, _TIME, _WALL_TIME, _IMAGE, _NAMESPACE, _KEY, _BEFORE, _UPDATE = _NAME_BYTES
_TIME += 8
_WALL_TIME += 8
_FIXED = {TIMESTAMP: (8, 0), DATE: (8, 0), STRING: (0, 4), DOCUMENT: (0, 0)}
_SIZES = [(len(name) + 2, *_FIXED[kind]) for name, kind in FIELDS]
"""Of each part the bytes of its name, those of its value, or else those beside its length."""


def cut(events: Sequence[bytes], documents: str = "bson") -> Columns:
    """The columns of some events, each its BSON document.

    ``documents`` says how columns keep documents: as ``bson``, or as ``canonical`` or ``relaxed``
    Extended JSON; a token stays BSON. Raises ``ValueError`` for what is no BSON document and for an
    event without a resume token.
    """
    namespaces: _Namespaces = {}
    values: list[Any] = []
    for event in events:
        try:
            values += _row(event, namespaces)
        except (IndexError, error) as cut_off:
            raise malformed(0, "the event is cut off") from cut_off
    columns: Columns = {name: values[n :: len(NAMES)] for n, name in enumerate(NAMES)}
    if documents != "bson":
        canonical = documents == "canonical"
        for name in _DOCUMENTS:
            columns[name] = [
                to_json(raw, canonical=canonical).encode() if isinstance(raw, bytes) else None
                for raw in columns[name]
            ]
    return columns


def _row(event: bytes, namespaces: _Namespaces) -> tuple[int | bytes | None, ...]:
    """The event's values, in the order of :data:`NAMES`."""
    found = offsets(event, 0)
    token_at, operation_at, time_at, wall_at, image_at, ns_at, key_at, before_at, update_at = found
    if token_at < 0:
        _refuse(event)
    apart = False  # whether a column shows something that is kept in `extra` besides
    token = event[token_at : token_at + INT32(event, token_at)[0]]
    size = 5 + _TOKEN + len(token)
    operation, database, collection = b"", None, None
    seconds = increment = wall_time = key = image = before = update = extra = None
    if operation_at > 0:
        end = operation_at + 4 + INT32(event, operation_at)[0]
        operation = event[operation_at + 4 : end - 1]
        size += _OPERATION + end - operation_at
        if not operation.isascii():
            text = operation.decode("utf-8", "replace").encode()
            if text != operation:
                operation, apart, found[OPERATION] = text, True, ABSENT
    if time_at > 0:
        time = UINT64(event, time_at)[0]
        seconds, increment = time >> 32, time & 0xFFFFFFFF
        size += _TIME
    if wall_at > 0:
        wall_time = INT64(event, wall_at)[0]
        size += _WALL_TIME
        if not _FIRST_MS <= wall_time <= _LAST_MS:
            wall_time, apart, found[WALL_TIME] = None, True, ABSENT
    if image_at > 0:
        image = event[image_at : image_at + INT32(event, image_at)[0]]
        size += _IMAGE + len(image)
    if ns_at > 0:
        namespace = event[ns_at : ns_at + INT32(event, ns_at)[0]]
        size += _NAMESPACE + len(namespace)
        if namespace not in namespaces:
            namespaces[namespace] = _names(namespace)
        database, collection, whole = namespaces[namespace]
        if not whole:
            apart, found[NAMESPACE] = True, ABSENT
    if key_at > 0:
        key = event[key_at : key_at + INT32(event, key_at)[0]]
        size += _KEY + len(key)
    if before_at > 0:
        before = event[before_at : before_at + INT32(event, before_at)[0]]
        size += _BEFORE + len(before)
    if update_at > 0:
        update = event[update_at : update_at + INT32(event, update_at)[0]]
        size += _UPDATE + len(update)
    if apart or size != len(event) or event[-1]:
        extra = _extra(event, found)
    return (
        seconds,
        increment,
        token,
        wall_time,
        operation,
        database,
        collection,
        key,
        image,
        before,
        update,
        extra,
    )


def _extra(event: bytes, found: Sequence[int]) -> bytes | None:
    """A document of every element that is none of the parts found, in their order."""
    if INT32(event, 0)[0] != len(event) or event[-1]:
        raise malformed(0, f"{len(event)} bytes that say otherwise")
    parts = [
        (at - name, at + (fixed or INT32(event, at)[0] + more))
        for at, (name, fixed, more) in zip(found, _SIZES, strict=True)
        if at > 0
    ]
    others, position, last = [], 4, len(event) - 1
    for begin, end in sorted([*parts, (last, last)]):
        if begin < position:
            raise malformed(begin, "the element before reaches beyond")
        others.append(event[position:begin])
        position = end
    return _verified(b"".join(others))


@lru_cache(256)  # UUIDs and sessions: each comes again and again
def _verified(elements: bytes) -> bytes | None:
    """The document of these elements. Raises ``ValueError`` where they are none."""
    document = encoded(elements)
    return document if [*walk(document, 0)] else None


def _names(namespace: bytes) -> tuple[bytes | None, bytes | None, bool]:
    """Database and collection, with replacement characters for what is no UTF-8."""
    names: dict[bytes, bytes] = {}
    shape = []
    for name, kind, value, end in walk(namespace, 0):
        shape.append(name)
        if kind == STRING and name in (b"db", b"coll"):
            names[name] = namespace[value + 4 : end - 1]
    shown = {name: text.decode("utf-8", "replace").encode() for name, text in names.items()}
    whole = shape in ([b"db"], [b"db", b"coll"]) and list(names) == shape and shown == names
    return shown.get(b"db"), shown.get(b"coll"), whole


def _refuse(event: bytes) -> None:
    for _ in walk(event, 0):
        pass
    raise ValueError("an event without a resume token: its _id is no document")
