"""Turns rows of segments into rows of the log, in Spark's Python workers, a batch at a time.

Every document becomes canonical Extended JSON. This module also computes each event's key, its
table, and whether it has an image of the document.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

import bson
import pyarrow as pa

from tailrace.event.bson import encoded
from tailrace.event.document_identity import changed_key
from tailrace.event.document_key import identity
from tailrace.event.document_tree import to_bson, tree_of
from tailrace.event.extended_json import to_json
from tailrace.lake.segment import Documents
from tailrace.pipeline.schemas import DOCUMENT_OPERATIONS, NO_TABLE, TEXTS, table_name

_AFTER = frozenset({"insert", "replace", "update", "read"})
_NULL_IMAGE = '"fullDocument":null'
_AROUND_ID = len('{"_id":}')
_USUAL = (('{"_id":{"$oid":', 2), ('{"_id":"', 1))
_WHOLE = re.compile(r'\{"_id":\{"\$number(?:Int|Long)":"(0|-?[1-9][0-9]{0,17})"\}\}').fullmatch
_from_bson = partial(to_json, canonical=True)
_TOKEN = Struct("<i7si").unpack_from
_DATA = b"\x02_data\0"
_TOKEN_BYTES = 16
"""Of a token ``{_data: ""}`` but the terminator of the string, which its length counts."""


def decode(
    batches: Iterable[pa.RecordBatch], *, documents: Documents, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of segments as rows of the log. A ``ValueError`` names the malformed row."""
    to_text = _from_bson if documents is Documents.BSON else str
    for batch in batches:
        columns = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        texts = {name: _texts(batch, columns[name], to_text) for name in TEXTS}
        token = _texts(batch, columns["token"], _token_text)
        operations, databases, collections = (
            columns[name].to_pylist() for name in ("operation", "database", "collection")
        )
        keys = [None if text is None else key_of(text) for text in texts["document_key"]]
        images = list(map(image_of, operations, texts["full_document"], texts["extra"]))
        tables = list(map(_table, operations, databases, collections, keys))
        after = _keys_after(keys, operations, texts)
        made = {**texts, "token": token, "image": images, "table": tables}
        made |= {"key": keys, "key_after": after}
        arrays = [
            pa.array(made[field.name], field.type)
            if field.name in made
            else columns[field.name].cast(field.type)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _table(operation: str, database: str | None, collection: str | None, key: str | None) -> str:
    if operation in DOCUMENT_OPERATIONS and database and collection and key is not None:
        return table_name(database, collection)
    return NO_TABLE


def _keys_after(
    keys: Sequence[str | None], operations: Sequence[str], texts: Mapping[str, list[str | None]]
) -> list[str | None]:
    """The document keys after the events; ``None`` for keys that are only an ``_id``."""
    changed_keys: list[str | None] = [None] * len(keys)
    rows = zip(
        keys,
        operations,
        texts["document_key"],
        texts["full_document"],
        texts["update_description"],
        strict=True,
    )
    for at, (key, operation, document_key, document, description) in enumerate(rows):
        if key is None or document_key is None:
            continue
        if len(document_key) == len(key) + _AROUND_ID or _WHOLE(document_key):
            continue
        before = json.loads(document_key)
        if len(before) > 1:
            changed = changed_key(
                before,
                operation,
                None if document is None else json.loads(document),
                None if description is None else json.loads(description),
            )
            changed_keys[at] = json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
    return changed_keys


def key_of(document_key: str) -> str | None:
    """The identity of the document as text (:mod:`tailrace.event.document_key`), if it has one."""
    for front, colons in _USUAL:  # only an ObjectId or a string: no parser is needed
        if document_key.startswith(front) and document_key.count('":') == colons:
            return document_key[7:-1]
    if whole := _WHOLE(document_key):
        return f'{{"$numberLong":"{whole[1]}"}}'
    element = identity(to_bson(tree_of(document_key)), 0)
    return to_json(encoded(element), canonical=True)[7:-1] if element else None


def image_of(operation: str, document: str | None, extra: str | None) -> str | None:
    """``present``, ``null`` or ``absent``; ``None`` for operations that have no document."""
    if operation not in _AFTER:
        return None
    if document is not None:
        return "present"
    if extra is not None and _NULL_IMAGE in extra:
        return "null" if json.loads(extra).get("fullDocument", "") is None else "absent"
    return "absent"


def _token_text(token: bytes) -> str:
    """As Extended JSON; nearly every token is a document of one string."""
    if len(token) > _TOKEN_BYTES:
        size, name, length = _TOKEN(token, 0)
        if name == _DATA and size == len(token) == length + _TOKEN_BYTES:
            data = token[_TOKEN_BYTES - 1 : -2]
            if data.isalnum() and token.endswith(b"\0\0"):
                return f'{{"_data":"{data.decode()}"}}'
    return _from_bson(token)


def _texts(
    batch: pa.RecordBatch, column: pa.Array, to_text: Callable[[Any], str]
) -> list[str | None]:
    texts: list[str | None] = []
    if column.null_count == len(column):
        return [None] * len(column)
    try:
        for value in column.to_pylist():
            texts.append(None if value is None else to_text(value))
    except (ValueError, TypeError, bson.errors.BSONError) as error:
        scope, segment, ordinal = (
            batch.column(name)[len(texts)].as_py() for name in ("scope", "segment", "ordinal")
        )
        message = str(error).removeprefix("malformed BSON ")
        raise ValueError(
            f"scope {scope}, segment {segment}, ordinal {ordinal}: malformed BSON {message}"
        ) from None
    return texts
