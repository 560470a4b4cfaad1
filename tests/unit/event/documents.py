"""Random BSON: every type that a document may hold, and replies of a server made of it."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import settings
from hypothesis import strategies as st

from tailrace.event import RawBatch
from tailrace.event.reply import read_reply
from tailrace.model import ResumeToken

quick = settings(max_examples=40, deadline=None)
"""Enough to find what these properties ever found, on a machine with other things to do."""

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
timestamps = st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
# NaN only in its usual form: Extended JSON has no other.
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1).map(Int64),
    st.floats().map(lambda number: number if number == number else float("nan")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
    st.builds(Binary, st.binary(max_size=8), st.sampled_from([2, 5, 128])),
    st.uuids().map(Binary.from_uuid),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
    ),
    timestamps,
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(
        lambda number: Decimal128(str(number)[:30])
    ),
    st.sampled_from([MinKey(), MaxKey(), Code("x"), Code("x", {"y": 1}), Regex("a.*", "i")]),
    st.just(DBRef("things", 1, "shop")),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents: st.SearchStrategy[dict[str, Any]] = st.dictionaries(names, values, max_size=6)

# One value of every BSON type that may be an `_id`.
EVERY_ID: dict[str, Any] = {
    "int32": 7,
    "int64": Int64(2**40),
    "double": 1.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "text": "x",
    "object id": ObjectId(),
    "binary": Binary(b"x", 5),
    "uuid": Binary.from_uuid(uuid.uuid4()),
    "date": datetime(2026, 1, 1, tzinfo=UTC),
    "timestamp": Timestamp(1, 2),
    "decimal": Decimal128("1.50"),
    "decimal nan": Decimal128("NaN"),
    "true": True,
    "null": None,
    "min key": MinKey(),
    "max key": MaxKey(),
    "code": Code("x"),
    "code with scope": Code("x", {"a": 1}),
    "regex": Regex("a.*", "i"),
    "document": {"a": {"b": [1]}},
    "empty document": {},
    "array": [1, {"a": 1}],
    "reference": DBRef("things", 1),
}


def reply(
    events: Sequence[dict[str, Any] | bytes],
    *,
    token: Mapping[str, Any] | None = None,
    time: Timestamp | None = None,
    cursor_id: int = 42,
    name: str = "nextBatch",
) -> bytes:
    """What a server answers to ``aggregate`` (``firstBatch``) or ``getMore``."""
    cursor: dict[str, Any] = {
        name: [RawBSONDocument(e) if isinstance(e, bytes) else e for e in events]
    }
    if token is not None:
        cursor["postBatchResumeToken"] = token
    cursor |= {"id": Int64(cursor_id), "ns": "shop.orders"}
    document: dict[str, Any] = {"cursor": cursor, "ok": 1.0}
    if time is not None:
        document["operationTime"] = time
    return bson.encode(document)


def batch_of(
    events: Sequence[dict[str, Any] | bytes], token: Mapping[str, Any] | None = None
) -> RawBatch:
    """A batch as it comes from the wire."""
    found = read_reply(reply(events))
    return RawBatch(found.buffer, found.bounds, ResumeToken.of(token) if token else None)
