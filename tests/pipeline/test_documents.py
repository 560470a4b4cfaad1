"""Documents: every type of BSON, and names that no directory may have."""

from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex
from bson.timestamp import Timestamp
from pyspark.sql import SparkSession

from tailrace.event.extended_json import to_json
from tailrace.lake.segment import Documents
from tailrace.pipeline import small_batch
from tailrace.pipeline.decoding import key_of
from tailrace.pipeline.schemas import table_name
from tests.pipeline.events import Stream
from tests.pipeline.pipeline import Pipeline
from tests.scratch import MakeDirectory

_HEAD = b"\x0esymbol\0\x04\0\0\0abc\0\x06undefined\0\x0cpointer\0\x02\0\0\0a\0" + bytes(12)
"""Types that PyMongo no longer writes."""

EVERYTHING: dict[str, Any] = {
    "_id": 1,
    "double": 1.5,
    "whole double": 3.0,
    "minus zero": -0.0,
    "nan": float("nan"),
    "infinite": float("-inf"),
    "string": 'ä\u2028\0"\\ {"$numberInt":"5"}',
    "document": {"a.b": {"$c": 1, "": []}},
    "array": [1, [2, {}], None],
    "binary": Binary(b"\0\xff", 0x80),
    "uuid": Binary(bytes(16), 4),
    "object id": ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"),
    "bool": True,
    "date": DatetimeMS(1),
    "old date": DatetimeMS(-(2**62)),
    "far date": DatetimeMS(2**62),
    "null": None,
    "regex": Regex('a/b"', "imx"),
    "code": Code("f()"),
    "code with scope": Code("f()", {"x": Int64(1)}),
    "int32": -(2**31),
    "int64": Int64(5),
    "big": Int64(2**63 - 1),
    "timestamp": Timestamp(2**32 - 1, 2**32 - 1),
    "decimal": Decimal128("1.50E+6000"),
    "decimal nan": Decimal128("NaN"),
    "min": MinKey(),
    "max": MaxKey(),
}

KEYS: list[Any] = [
    {"a": 1, "b": "x"}, Int64(2**40), 1.5, Decimal128("2.5"), True, None, Binary(b"x", 0), "1",
    ObjectId("5f5e0f0f0f0f0f0f0f0f0f0f"), DatetimeMS(-5), float("nan"), 'a":"b',
]  # fmt: skip

NAME = "Größe/a.b c%"


def raw(document: dict[str, Any]) -> bytes:
    body = bson.encode(document)[4:-1] + _HEAD + b"\0"
    return (len(body) + 4).to_bytes(4, "little") + body


@pytest.fixture(scope="module", params=[small_batch.ROWS, 0], ids=["here", "in Spark"])
def pipeline(
    request: pytest.FixtureRequest, spark: SparkSession, session_directory: MakeDirectory
) -> Pipeline:
    """Tables of documents that this process has decoded, or Spark's workers."""
    pipeline = Pipeline(spark, session_directory("documents"))
    s = Stream()
    everything = s.insert(1, "types")
    everything["fullDocument"] = raw(EVERYTHING)
    pipeline.land([everything], documents=Documents.BSON)
    events = [s.insert(key, "keys", n=1) for key in KEYS]
    events += [s.insert("k", NAME, n=1)]
    pipeline.land(events, documents=Documents.CANONICAL)
    updated = s.update(1, "types", int64=Int64(6), document__new=Decimal128("0.10"))
    pipeline.land([updated, *(s.delete(key, "keys") for key in KEYS[:3])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_batch, "ROWS", request.param)
        pipeline.run()
    return pipeline


def test_every_type_survives_the_log_and_an_update(pipeline: Pipeline) -> None:
    before, after = sorted(
        pipeline.table("history/shop.types"), key=lambda row: row["valid_from_position"]
    )
    assert before["document"] == to_json(raw(EVERYTHING), canonical=True)
    document = {**EVERYTHING["document"], "new": Decimal128("0.10")}
    changed = {**EVERYTHING, "int64": Int64(6), "document": document}
    assert after["document"] == to_json(raw(changed), canonical=True)
    (log,) = [row for row in pipeline.table("changes") if row["ordinal"] == 0]
    assert log["full_document"] == before["document"]
    assert log["token"] == '{"_data":"00000001"}'


def test_a_key_may_be_of_any_type(pipeline: Pipeline) -> None:
    keys = {row["document_key"] for row in pipeline.table("current/shop.keys")}
    assert keys == {to_json(bson.encode({"_id": key}), canonical=True) for key in KEYS[3:]}


@pytest.mark.parametrize("number", [0, -7, 2**31 - 1, 10**17, 2**63 - 1, -(2**63)])
def test_equal_numbers_are_one_key(number: int) -> None:
    same = [Int64(number), Decimal128(str(number))]
    same += [number] if abs(number) < 2**31 else []
    texts = [to_json(bson.encode({"_id": each}), canonical=True) for each in same]
    assert {key_of(text) for text in texts} == {f'{{"$numberLong":"{number}"}}'}


@pytest.mark.parametrize("text", ["05", "-0", "99999999999999999999", "x"])
def test_a_document_that_looks_like_a_number_is_a_key_of_its_own(text: str) -> None:
    """An application may store it; only the text of a number that BSON holds is one."""
    key = key_of(f'{{"_id":{{"$numberLong":"{text}"}}}}')
    whole = {"05": "5", "-0": "0"}.get(text, text)
    assert key == f'{{"$numberLong":"{whole}"}}'


def test_a_collection_may_have_a_name_that_no_directory_may_have(pipeline: Pipeline) -> None:
    assert pipeline.current(table_name("shop", NAME)) == {"k": {"n": 1}}
    (row,) = [row for row in pipeline.table("changes") if row["collection"] == NAME]
    assert row["database"] == "shop"
