"""The server decides which values are equal: a unique index, as on ``_id``, refuses the second."""

import uuid
from datetime import UTC, datetime
from itertools import product
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId
from bson.timestamp import Timestamp
from pymongo.errors import BulkWriteError

from tailrace.event.document_key import identity
from tests.mongod import ReplicaSet

NUMBERS = [
    *(0, -0.0, Int64(0), Decimal128("0"), Decimal128("-0E+3")),
    *(7, Int64(7), 7.0, Decimal128("7"), Decimal128("7.000"), Decimal128("0.7E+1")),
    *(1.5, Decimal128("1.5"), Decimal128("1.50"), 0.1, Decimal128("0.1"), Decimal128("0.10")),
    *(2**53, 2.0**53, Int64(2**53 + 1), Decimal128(str(2**53 + 1))),
    *(Int64(2**63 - 1), 2.0**63, Decimal128(str(2**63)), Decimal128(str(2**63 - 1))),
    *(-(2**63), -(2.0**63), Decimal128(str(-(2**63)))),
    *(1e300, Decimal128("1E+300"), Decimal128("1E+6000"), Decimal128("10E+5999"), 5e-324),
    *(float("nan"), -float("nan"), Decimal128("NaN"), Decimal128("-NaN"), Decimal128("sNaN")),
    *(float("inf"), Decimal128("Infinity"), -float("inf"), Decimal128("-Infinity")),
]
OTHERS = [
    *(True, False, None, "", "7", "seven", b"7", Binary(b"7", 5), Binary(b"7", 128)),
    *(Binary.from_uuid(uuid.UUID(int=7)), Binary(bytes(16), 3), Binary(bytes(16), 4)),
    *(ObjectId(b"o" * 12), datetime(1970, 1, 1, tzinfo=UTC), Timestamp(0, 7), Timestamp(7, 0)),
    *(MinKey(), MaxKey(), Code("x"), Code("x", {}), Code("x", {"a": 1}), Code("x", {"a": 1.0})),
]
DOCUMENTS = [
    *({}, {"a": 7}, {"a": 7.0}, {"a": Decimal128("7.0")}, {"b": 7}, {"a": 7, "b": 1}),
    *({"b": 1, "a": 7}, {"a": {"b": [7]}}, {"a": {"b": [Int64(7)]}}, {"a": True}, {"a": None}),
]


@pytest.mark.parametrize("values", [NUMBERS + OTHERS[:3], OTHERS, DOCUMENTS + OTHERS[:3]])
def test_keys_are_equal_where_the_server_refuses_the_second(
    values: list[Any], mongod: ReplicaSet, database: str
) -> None:
    """For each pair of values; the pair is a part of the index, so that all fit into one."""
    keys = [identity(bson.encode({"_id": value}), 0) for value in values]
    pairs = list(enumerate(product(range(len(values)), repeat=2)))
    with mongod.client() as client:
        collection = client[database].pairs
        collection.create_index([("pair", 1), ("value", 1)], unique=True)
        collection.insert_many([{"pair": pair, "value": values[n]} for pair, (n, _) in pairs])
        others = [{"pair": pair, "value": values[n]} for pair, (_, n) in pairs]
        with pytest.raises(BulkWriteError) as raised:
            collection.insert_many(others, ordered=False)
    errors = (raised.value.details or {})["writeErrors"]
    assert {each["code"] for each in errors} == {11000}
    refused = {each["index"] for each in errors}
    equal = {pair for pair, (one, other) in pairs if keys[one] == keys[other]}
    assert [[values[n] for n in pairs[pair][1]] for pair in refused ^ equal] == []
