"""Keys and documents in the forms that a query asks for, many at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import bson
import numpy as np
import pyarrow as pa
from pyspark.sql.types import VariantVal

from tailrace.event import document_tree
from tailrace.event.document_key import id_alone, key_text
from tailrace.event.document_tree import tree_of
from tailrace.event.json_lines import CANONICAL, RELAXED, json_texts
from tailrace.lake.segment import Documents
from tailrace.spark.options import ShownForm, document_type

_OBJECT_ID_KEY = bson.encode({"_id": bson.ObjectId(bytes(12))})
_ID_NAME, _NAME_AT = b"_id\0", len(b"????") + len(b"?")
_ID_AT = len(_OBJECT_ID_KEY) - 13
_HEX = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)
_AROUND_ID = len('{"_id":'), -len("}")
_ONLY_OBJECT_ID = '{"_id":{"$oid":"' + 24 * "0" + '"}}'


def to_bson(text: str) -> bytes:
    """Canonical Extended JSON as BSON."""
    return document_tree.to_bson(tree_of(text))


def id_text(key: bytes | str) -> str | None:
    """The ``_id`` of a document (key) as canonical Extended JSON; ``None`` if it has none."""
    if isinstance(key, bytes):
        alone = id_alone(key)
        has_id = alone.startswith(_ID_NAME, _NAME_AT)
        return key_text(alone)[slice(*_AROUND_ID)] if has_id else None
    if len(key) == len(_ONLY_OBJECT_ID) and key.startswith(_ONLY_OBJECT_ID[:16]):
        return key[slice(*_AROUND_ID)]
    document = json.loads(key)
    if "_id" not in document:
        return None
    return json.dumps(document["_id"], ensure_ascii=False, separators=(",", ":"))


def id_texts(keys: pa.Array) -> pa.Array:
    """:func:`id_text` of each document key; null for null, and for one without ``_id``."""
    hexadecimal = _object_ids(keys)
    if hexadecimal is not None:
        return _around('{"$oid":"', hexadecimal, '"}')
    return pa.array(
        [None if key is None else id_text(key) for key in keys.to_pylist()], pa.string()
    )


def documents(column: pa.Array, landed: Documents, form: ShownForm) -> pa.Array:
    """A column of documents in another form; null for null. Raises as ``json_texts``."""
    if column.null_count == len(column):
        return pa.nulls(len(column), document_type(form))
    if (landed is Documents.BSON) == (form is ShownForm.BSON) and form.value == landed.value:
        return column
    if landed is Documents.BSON and form is not ShownForm.VARIANT:
        ids = _object_ids(column)
        if ids is not None:  # keys, in both forms of Extended JSON
            return _around('{"_id":{"$oid":"', ids, '"}}')
    return converted(column.to_pylist(), form)


def converted(values: Sequence[bytes | str | None], form: ShownForm) -> pa.Array:
    """Documents as BSON or as canonical Extended JSON, in a form; null for null."""
    if form is ShownForm.CANONICAL and any(isinstance(each, str) for each in values):
        made = iter(json_texts([each for each in values if isinstance(each, bytes)], CANONICAL))
        texts = (next(made).decode() if isinstance(each, bytes) else each for each in values)
        return pa.array(texts, pa.string())
    raws: list[bytes | None] = [to_bson(v) if isinstance(v, str) else v for v in values]
    if form is ShownForm.BSON:
        return pa.array(raws, pa.binary())
    there = np.array([raw is not None for raw in raws], bool)
    shown = json_texts(
        [raw for raw in raws if raw is not None],
        CANONICAL if form is ShownForm.CANONICAL else RELAXED,
    )
    column = _variants(shown) if form is ShownForm.VARIANT else _strings(shown)
    return column if there.all() else column.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _strings(texts: Sequence[bytes]) -> pa.Array:
    """UTF-8 as an array. Of single values, Arrow takes twice the time to make one."""
    offsets = pa.array([0, *accumulate(map(len, texts))], pa.int32()).buffers()[1]
    return pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(b"".join(texts)))


def _variants(texts: Sequence[bytes]) -> pa.Array:
    parsed = (VariantVal.parseJson(text.decode()) for text in texts)
    fields = [{"value": each.value, "metadata": each.metadata} for each in parsed]
    return pa.array(fields, document_type(ShownForm.VARIANT))


def are_object_ids(keys: pa.Array) -> bool:
    """Whether all of these document keys are an ObjectId ``_id`` and nothing else."""
    return _object_ids(keys) is not None


def _object_ids(column: pa.Array) -> Any:
    """The hexadecimal digits of keys that are nothing but an ObjectId ``_id``; else ``None``."""
    count, size = len(column), len(_OBJECT_ID_KEY)
    if not count or column.null_count or column.type != pa.binary():
        return None
    offsets = np.frombuffer(column.buffers()[1], np.int32)[
        column.offset : column.offset + count + 1
    ]
    if offsets[-1] - offsets[0] != count * size or (np.diff(offsets) != size).any():
        return None
    raw = np.frombuffer(column.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    rows = raw.reshape(count, size)
    head = np.frombuffer(_OBJECT_ID_KEY[:_ID_AT], np.uint8)
    if (rows[:, :_ID_AT] != head).any():
        return None
    return _HEX[rows[:, _ID_AT:-1]].reshape(count, 24)


def _around(head: str, digits: Any, tail: str) -> pa.Array:
    """Texts of the same length: digits with the same text before and after them."""
    count, size = len(digits), len(head) + 24 + len(tail)
    made = np.empty((count, size), np.uint8)
    made[:, : len(head)] = np.frombuffer(head.encode(), np.uint8)
    made[:, len(head) : -len(tail)] = digits
    made[:, -len(tail) :] = np.frombuffer(tail.encode(), np.uint8)
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(made))
