"""Change events as columns: the bytes of their parts, undecoded."""

from collections.abc import Sequence
from functools import lru_cache
from struct import error
from typing import Any

from tailrace.event.bson import INT32, STRING, encoded, malformed, walk
from tailrace.event.extended_json import to_json
from tailrace.event.layout import FIELDS, parts
from tailrace.event.memo import Memo

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
"""The columns, in order. ``extra`` is a document of everything that no other column has."""

_DOCUMENTS = NAMES[7:]

Columns = dict[str, Sequence[int | bytes | None]]
"""By name, in the order of :data:`NAMES`: one value per event, with text as UTF-8."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers fail on timestamps beyond them."""


def cut(events: Sequence[bytes], documents: str = "bson") -> Columns:
    """The columns of some events, each given as its BSON document.

    Columns keep documents as ``bson`` or ``canonical`` Extended JSON; a token stays BSON. Raises
    ``ValueError`` for malformed BSON and for an event without a resume token.
    """
    values: list[Any] = []
    for event in events:
        try:
            values += _row(event)
        except (IndexError, error) as cut_off:
            raise malformed(0, "the event is cut off") from cut_off
    columns: Columns = {name: values[n :: len(NAMES)] for n, name in enumerate(NAMES)}
    if documents != "bson":
        for name in _DOCUMENTS:
            columns[name] = [
                to_json(raw, canonical=True).encode() if isinstance(raw, bytes) else None
                for raw in columns[name]
            ]
    return columns


def _row(event: bytes) -> tuple[int | bytes | None, ...]:
    """The event's values, in the order of :data:`NAMES`."""
    (
        end, token, token_end, operation, seconds, increment, wall_time, image, image_end,
        namespace, key, key_end, update, update_end, before, before_end, others,
    ) = parts(event, 0)  # fmt: skip
    if token < 0:
        _refuse(event)
    # A value that a column cannot hold exactly is also in `extra`.
    whole: tuple[bytes, ...] = ()
    database = collection = extra = None
    if operation is None:
        operation = b""
    elif not operation.isascii() and operation != (text := _text(operation)):
        operation, whole = text, (b"operationType",)
    if wall_time is not None and not _FIRST_MS <= wall_time <= _LAST_MS:
        wall_time, whole = None, (*whole, b"wallTime")
    if namespace is not None:
        database, collection, all_of_it = _namespaces[namespace]
        if not all_of_it:
            whole = (*whole, b"ns")
    if whole or end != len(event) or event[-1]:
        extra = _extra(event, whole)
    elif others:
        extra = _verified(b"".join([event[begin:stop] for begin, stop in others]))
    return (
        seconds,
        increment,
        event[token:token_end],
        wall_time,
        operation,
        database,
        collection,
        event[key:key_end] if key > 0 else None,
        event[image:image_end] if image > 0 else None,
        event[before:before_end] if before > 0 else None,
        event[update:update_end] if update > 0 else None,
        extra,
    )


def _extra(event: bytes, whole: Sequence[bytes]) -> bytes | None:
    """A document of the elements without a column, and of the ``whole`` ones to keep exactly."""
    if INT32(event, 0)[0] != len(event):
        raise malformed(0, f"{len(event)} bytes that say otherwise")
    elements, columns = [], {}
    for name, kind, value, end in walk(event, 0):
        elements.append(event[value - len(name) - 2 : end])
        if name in FIELDS:
            shown = kind == FIELDS[name] and name not in whole
            columns[name] = len(elements) - 1 if shown else None
    others = [raw for at, raw in enumerate(elements) if at not in columns.values()]
    return encoded(b"".join(others)) if others else None


@lru_cache(256)  # UUIDs and sessions, which repeat often
def _verified(elements: bytes) -> bytes | None:
    """The document with these elements. Raises ``ValueError`` if they are malformed."""
    document = encoded(elements)
    return document if [*walk(document, 0)] else None


def _names(namespace: bytes) -> tuple[bytes | None, bytes | None, bool]:
    """Database, collection, and whether they say everything; invalid UTF-8 is replaced."""
    names: dict[bytes, bytes] = {}
    shape = []
    for name, kind, value, end in walk(namespace, 0):
        shape.append(name)
        if kind == STRING and name in (b"db", b"coll"):
            names[name] = namespace[value + 4 : end - 1]
    shown = {name: _text(text) for name, text in names.items()}
    whole = shape in ([b"db"], [b"db", b"coll"]) and list(names) == shape and shown == names
    return shown.get(b"db"), shown.get(b"coll"), whole


_namespaces = Memo(_names)


def _text(raw: bytes) -> bytes:
    return raw.decode("utf-8", "replace").encode()


def _refuse(event: bytes) -> None:
    for _ in walk(event, 0):
        pass
    raise ValueError("an event without a resume token: its _id is not a document")
