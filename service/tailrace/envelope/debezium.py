"""The envelope of Debezium's connector for MongoDB, with its JSON converter without schemas.

Taken from Debezium 3.6.3 at work (capture mode ``change_streams_update_full_with_pre_image``):
tests/unit/envelope/debezium_3_6_3.jsonl has what it sent. Differences: no spaces between the values
of ``before``, ``after`` and ``updatedFields``; and NaN and the infinities there are
``{"$numberDouble":"NaN"}``, because Debezium's bare ``NaN`` is not JSON. Source:
https://debezium.io/documentation/reference/stable/connectors/mongodb.html
"""

import time
from collections.abc import Sequence
from json.encoder import encode_basestring as quote

from tailrace.envelope.debezium_json import STRICT, escaped, id_text, quoted
from tailrace.envelope.identity import event_id
from tailrace.envelope.message import NOTHING, Message
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.bson import ARRAY, DOCUMENT, EMPTY_DOCUMENT, INT32, document_at, elements
from tailrace.event.extended_json import RELAXED as WRITERS
from tailrace.event.json_lines import RELAXED, Form, json_texts
from tailrace.event.layout import END, INCREMENT, OPERATION, OTHERS, SECONDS, WALL_TIME
from tailrace.event.memo import Memo
from tailrace.version import __version__

LETTERS = {b"insert": b"c", b"update": b"u", b"replace": b"u", b"delete": b"d", b"read": b"r"}
"""Debezium's letters. It sends no message for any other operation."""


def debezium_messages(events: Sequence[ChangeEvent], scope: str, form: Form) -> list[Message]:
    """Debezium's messages, without the tombstones that it sends after deletes."""
    before = _texts(events, "fullDocumentBeforeChange")
    after = _texts(events, "fullDocument")
    description = _descriptions(events)
    version, name = _string(__version__), _string(scope)
    source = b'{"version":%b,"connector":"mongodb","name":%b' % (version, name)
    now = time.time_ns() // 1_000_000
    made: list[Message] = []
    for event, *values in zip(events, before, after, description, strict=True):
        letter, key = LETTERS.get(event.parts[OPERATION]), _key(event)
        if letter is None or key is None:
            made.append(NOTHING)
            continue
        value = b'{"before":%b,"after":%b,"updateDescription":%b,"source":%b%b,"op":"%b",' % (
            *values, source, _source(event, now), letter,
        )  # fmt: skip
        whole = b'%b"ts_ms":%d,"transaction":null}' % (value, now)
        made.append(Message(key, whole, event_id(event)))
    return made


def _texts(events: Sequence[ChangeEvent], field: str) -> list[bytes]:
    """A field of each event as JSON in a JSON string, or ``null``."""
    documents = [event.field_bytes(field) for event in events]
    texts = iter(json_texts([raw for raw in documents if raw is not None], STRICT))
    return [b"null" if raw is None else quoted(next(texts)) for raw in documents]


def _descriptions(events: Sequence[ChangeEvent]) -> list[bytes]:
    """``updateDescription`` of each event, or ``null``. Lists without elements are ``null``."""
    described = [
        event.field_bytes("updateDescription") if event.parts[OPERATION] == b"update" else None
        for event in events
    ]
    fields = [None if raw is None else elements(raw, 0) for raw in described]
    updated = [
        document_at(raw, at)
        for raw, parts in zip(described, fields, strict=True)
        if raw is not None and parts is not None
        for kind, at in [parts.get(b"updatedFields", (0, 0))]
        if kind == DOCUMENT
    ]
    texts = iter(json_texts(updated, RELAXED))
    made: list[bytes] = []
    for raw, parts in zip(described, fields, strict=True):
        if raw is None or parts is None:
            made.append(b"null")
            continue
        kind, _ = parts.get(b"updatedFields", (0, 0))
        made.append(
            b'{"removedFields":%b,"updatedFields":%b,"truncatedArrays":%b}'
            % (
                _list(raw, parts.get(b"removedFields")),
                quoted(next(texts)) if kind == DOCUMENT else b"null",
                _list(raw, parts.get(b"truncatedArrays")).replace(b'"newSize":', b'"size":'),
            )
        )
    return made


def _list(raw: bytes, value: tuple[int, int] | None) -> bytes:
    kind, at = value or (0, 0)
    if kind != ARRAY or (size := INT32(raw, at)[0]) == EMPTY_DOCUMENT:
        return b"null"
    return WRITERS[ARRAY](raw, at, at + size, WRITERS).encode()


def _key(event: ChangeEvent) -> bytes | None:
    key = event.field_bytes("documentKey")
    return None if key is None else debezium_key(key)


def debezium_key(key: bytes) -> bytes:
    """The key of messages about the document with this document key."""
    return b'{"id":"%b"}' % escaped(id_text(key))


def _source(event: ChangeEvent, now: int) -> bytes:
    """What ``source`` has after the name. A row has no wall time, and ``snapshot`` is true."""
    parts = event.parts
    database, collection = _names[event.ns]
    wall_time, seconds = parts[WALL_TIME], parts[SECONDS]
    ms = wall_time if wall_time is not None else now if seconds is None else seconds * 1000
    row = parts[OPERATION] == b"read"
    return (
        b',"ts_ms":%d,"snapshot":"%b","db":%b,"sequence":null,"ts_us":%d,"ts_ns":%d,'
        b'"collection":%b,"ord":%d,%b,"wallTime":%b}'
    ) % (
        ms,
        b"true" if row else b"false",
        database,
        ms * 1000,
        ms * 1_000_000,
        collection,
        parts[INCREMENT] or 0,
        _transaction(event) if parts[OTHERS] or parts[END] < 0 else _NO_TRANSACTION,
        b"null" if wall_time is None else b"%d" % wall_time,
    )


_NO_TRANSACTION = b'"lsid":null,"txnNumber":null'


def _transaction(event: ChangeEvent) -> bytes:
    lsid, number = event.field_bytes("lsid"), event.txn_number
    if lsid is None or number is None:
        return _NO_TRANSACTION
    return b'"lsid":%b,"txnNumber":%d' % (_sessions[lsid], number)


_sessions: Memo[bytes, bytes] = Memo(lambda lsid: quoted(json_texts([lsid], STRICT)[0]))
_names: Memo[Namespace | None, tuple[bytes, bytes]] = Memo(
    lambda ns: (_string(ns.db if ns else ""), _string((ns and ns.coll) or ""))
)


def _string(text: str) -> bytes:
    return quote(text).encode()
