"""Change events as Arrow columns: what the server sent, cut at its fields and not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from service.handlers.parquet.layout import Positions, find
from service.lake.segment import COLUMNS, Documents, Kind
from service.model.bson_walk import DOCUMENT, STRING, TIMESTAMP
from service.model.extended_json import to_json

_DATE = 0x09

_FIELDS = {
    b"_id": DOCUMENT,
    b"operationType": STRING,
    b"clusterTime": TIMESTAMP,
    b"wallTime": _DATE,
    b"documentKey": DOCUMENT,
    b"fullDocument": DOCUMENT,
    b"fullDocumentBeforeChange": DOCUMENT,
    b"updateDescription": DOCUMENT,
}
"""What has a column of its own, besides the namespace, and the type that the column takes."""

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: readers fail on timestamps beyond them."""


def schema(documents: Documents) -> pa.Schema:
    """A segment's columns as Arrow types."""
    kinds = {
        Kind.INT64: pa.int64(),
        Kind.STRING: pa.string(),
        Kind.BINARY: pa.binary(),
        Kind.MILLISECONDS: pa.timestamp("ms", "UTC"),
        Kind.DOCUMENT: pa.binary() if documents is Documents.BSON else pa.string(),
    }
    required = {"scope", "segment", "ordinal", "token", "operation"}
    return pa.schema(
        pa.field(name, kinds[kind], nullable=name not in required) for name, kind in COLUMNS.items()
    )


def record_batch(
    events: Sequence[bytes], *, scope: str, segment: int, ordinal: int, documents: Documents
) -> pa.RecordBatch:
    """The columns of some events, each its BSON document; ``ordinal`` is that of the first.

    Their bytes together must stay below 2 GiB. Raises ``ValueError`` for what is no BSON document
    and for an event without a resume token.
    """
    slab = _Slab(events)
    count, tokens = len(events), slab.tokens()
    time = slab.numbers(b"clusterTime", "<u8")
    columns: dict[str, Any] = {
        "scope": pa.repeat(scope, count),
        "segment": pa.repeat(segment, count),
        "ordinal": pa.array(np.arange(ordinal, ordinal + count, dtype=np.int64)),
        "cluster_seconds": slab.column(b"clusterTime", (time >> np.uint64(32)).astype(np.int64)),
        "cluster_increment": slab.column(
            b"clusterTime", (time & np.uint64(0xFFFFFFFF)).astype(np.int64)
        ),
        "token": tokens,
        "wall_time": slab.wall_times(),
        "operation": slab.strings(b"operationType").fill_null(""),
        "database": slab.strings(b"db"),
        "collection": slab.strings(b"coll"),
        "document_key": slab.binary(b"documentKey"),
        "full_document": slab.binary(b"fullDocument"),
        "full_document_before_change": slab.binary(b"fullDocumentBeforeChange"),
        "update_description": slab.binary(b"updateDescription"),
        "extra": slab.extra(),
    }
    if documents is not Documents.BSON:
        for name, kind in COLUMNS.items():
            if kind is Kind.DOCUMENT:
                columns[name] = _text(columns[name], canonical=documents is Documents.CANONICAL)
    return pa.record_batch([columns[name] for name in COLUMNS], schema=schema(documents))


class _Slab:
    """Events in one buffer, and where their fields are (-1: absent, or not what a column takes)."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self._buffer = b"".join(events)
        bounds = np.fromiter(accumulate(map(len, events), initial=0), np.int64, len(events) + 1)
        self._starts, self._ends = bounds[:-1], bounds[1:]
        self._spans: dict[bytes, tuple[Positions, Positions, Positions]] = {}
        self._others: dict[int, list[tuple[int, bytes]]] = {}
        for found in find(self._buffer, self._starts, self._ends, _FIELDS):
            for name, (first, last) in found.layout.fields.items():
                begins, values, ends = self._span(name)
                begins[found.rows] = found.begins[first]
                values[found.rows] = found.values[first]
                ends[found.rows] = found.ends[last]
            for first, last in found.layout.others:
                self._set_apart(found.rows, found.begins[first], found.ends[last])

    def numbers(self, name: bytes, kind: str) -> NDArray[Any]:
        """The eight bytes of each value as a number; anything where it is absent."""
        _, values, _ = self._span(name)
        everywhere = np.ndarray((len(self._buffer) - 7,), kind, self._buffer, strides=(1,))
        return everywhere[np.maximum(values, 0)]

    def column(self, name: bytes, values: NDArray[Any]) -> pa.Array:
        """The values, null where the field is absent."""
        return pa.array(values, mask=self._absent(name))

    def binary(self, name: bytes) -> pa.Array:
        """The value's bytes."""
        _, values, ends = self._span(name)
        return self._cut(values, ends)

    def tokens(self) -> pa.Array:
        """The events' own ids."""
        if self._absent(b"_id").any():
            raise ValueError("an event without a resume token: its _id is no document")
        return self.binary(b"_id")

    def strings(self, name: bytes) -> pa.Array:
        """The text. What is not UTF-8 is shown with replacement characters, and kept apart."""
        _, values, ends = self._span(name)
        absent = values < 0
        cut = self._cut(np.where(absent, -1, values + 4), ends - 1)
        try:
            return cut.cast(pa.string())
        except pa.ArrowInvalid:
            raw = cut.to_pylist()
            texts = [None if text is None else text.decode("utf-8", "replace") for text in raw]
            again = [None if text is None else text.encode() for text in texts]
            changed = np.array([one != two for one, two in zip(raw, again, strict=True)])
            self._keep(name if name == b"operationType" else b"ns", changed)
            return pa.array(texts, pa.string())

    def wall_times(self) -> pa.Array:
        """The wall times; one that no reader's calendar has is kept apart."""
        times = self.numbers(b"wallTime", "<i8")
        absent = self._absent(b"wallTime")
        beyond = ~absent & ((times < _FIRST_MS) | (times > _LAST_MS))
        self._keep(b"wallTime", beyond)
        return pa.array(times, mask=absent | beyond).cast(pa.timestamp("ms", "UTC"))

    def extra(self) -> pa.Array:
        """A document of every element that no column has; asked for last."""
        documents: list[bytes | None] = [None] * len(self._starts)
        for row, parts in self._others.items():
            # In their order; a namespace may have been kept for both of its names.
            each = sorted(set(parts)) if len(parts) > 1 else parts
            body = b"".join([part for _, part in each])
            documents[row] = b"%b%b\0" % ((len(body) + 5).to_bytes(4, "little"), body)
        return pa.array(documents, pa.binary())

    def _span(self, name: bytes) -> tuple[Positions, Positions, Positions]:
        """Where the field's elements begin, their values, and their ends."""
        if name not in self._spans:
            begins, values, ends = (np.full(len(self._starts), -1, np.int64) for _ in range(3))
            self._spans[name] = begins, values, ends
        return self._spans[name]

    def _absent(self, name: bytes) -> NDArray[np.bool_]:
        absent: NDArray[np.bool_] = self._span(name)[1] < 0
        return absent

    def _keep(self, name: bytes, rows: NDArray[np.bool_]) -> None:
        """Sets the element apart, although a column shows it."""
        begins, _, ends = self._span(name)
        self._set_apart(np.flatnonzero(rows), begins[rows], ends[rows])

    def _set_apart(self, rows: Positions, begins: Positions, ends: Positions) -> None:
        buffer, others = self._buffer, self._others
        for row, begin, end in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True):
            others.setdefault(row, []).append((begin, buffer[begin:end]))

    def _cut(self, begins: Positions, ends: Positions) -> pa.Array:
        """Slices of the buffer, copied by Arrow: null where they begin at -1.

        The slices and what lies between them are one array over the buffer itself, of which
        every second value is taken.
        """
        count, absent = len(begins), begins < 0
        bounds = np.empty(2 * count + 1, np.int32)
        bounds[0:-1:2] = np.where(absent, self._starts, begins)
        bounds[1::2] = np.where(absent, self._starts, ends)
        bounds[-1] = len(self._buffer)
        both = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(self._buffer)]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2), mask=absent))


def _text(documents: pa.Array, *, canonical: bool) -> pa.Array:
    texts = [raw and to_json(raw, canonical=canonical) for raw in documents.to_pylist()]
    return pa.array(texts, pa.string())
