"""Lines encoded in C say what walking says, and are encoded so where nothing is lost by it."""

import json
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, ObjectId, Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import json_lines
from tailrace.event.extended_json import Writers, to_json, written
from tests.scripted.wire import in_order
from tests.unit.event.documents import documents, quick
from tests.unit.event.events import SURROUNDINGS, as_mongod_makes_it, events

EVENT = {
    "_id": {"_data": "82AB"},
    "operationType": "update",
    "clusterTime": Timestamp(2**32 - 1, 7),
    "wallTime": datetime(2026, 2, 3, 4, 5, 6, 789_000, UTC),
}
PLACE = {"ns": {"db": "shop", "coll": 'or"ders'}, "documentKey": {"_id": ObjectId(b"k" * 12)}}


def json_line(raw: bytes, *, canonical: bool) -> bytes:
    """The line of one event."""
    (line,) = json_lines.json_lines([raw], canonical=canonical)
    return line


def pairs(line: bytes | str) -> Any:
    """What a parser sees: values, and keys in their order and as often as they stand there."""
    return json.loads(line, object_pairs_hook=list)


def check(raw: bytes) -> None:
    """Repr, because -0.0 and NaN are not what they equal."""
    line = json_line(raw, canonical=False)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert repr(pairs(line)) == repr(pairs(to_json(raw, canonical=False)))


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), -float("inf"), -0.0, 1e300, 5e-324, 1e16, 0.1),
        *(2**63 - 1, -(2**63), Int64(1), True, None, "null", "a\0b", "\u2028", "\x7f\x1f"),
        *(datetime(1969, 12, 31, 23, 59, 59, 999_000), DatetimeMS(-(2**60)), DatetimeMS(2**60)),
        *(datetime(9999, 12, 31, 23, 59, 59, 999_000), datetime(1970, 1, 1)),
        *(Binary(b"x", 0), Binary(b"x", 2), Binary(b"x" * 16, 4), Binary(b"", 128)),
        *(Code("f()"), Code("f()", {"a": 1}), Regex("a", "xi"), Decimal128("1E+3")),
        *({"$ref": "a", "$id": 1}, [None, [float("nan")]], {"": {"": []}}, {"_id": 1, "a": 2}),
    ],
    ids=repr,
)
def test_values_at_the_edge(value: Any) -> None:
    check(bson.encode({**EVENT, "fullDocument": {"a": value, "b": None}, **PLACE}))


def with_image(element: bytes) -> bytes:
    """An event whose document has one element."""
    image = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    body = bson.encode(EVENT)[4:-1] + b"\x03fullDocument\0" + image + bson.encode(PLACE)[4:-1]
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


@pytest.mark.parametrize(
    "element",
    [
        *(b"\x06a\0", b"\x0ea\0\x02\0\0\0x\0", b"\x0ca\0\x02\0\0\0x\0" + b"o" * 12),
        *(b"\x10a\0\1\0\0\0\x10a\0\2\0\0\0", b"\x02a\0\x02\0\0\0\xff\0"),
    ],
    ids=["undefined", "symbol", "dbPointer", "repeated key", "no UTF-8"],
)
def test_what_decoding_would_lose_is_walked(element: bytes) -> None:
    raw = with_image(element)
    check(raw)
    assert json_line(raw, canonical=False) == to_json(raw, canonical=False).encode() + b"\n"


documents_of_ours = st.builds(
    lambda image, update: bson.encode(
        {**EVENT, "fullDocument": image, **PLACE, "updateDescription": update}
    ),
    documents,
    documents,
)
lost = st.sampled_from([b"\x06a\0", b"\x10a\0\1\0\0\0" * 2]).map(with_image)


@quick
@given(st.lists(events().map(in_order) | documents_of_ours | lost, max_size=12), st.booleans())
def test_each_of_many_events_has_the_line_that_it_has_alone(
    raw: list[bytes], canonical: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "_BLOCK_DOCUMENTS", 5)
        together = b"".join(json_lines.json_lines(raw, canonical=canonical))
    assert together == b"".join(json_line(each, canonical=canonical) for each in raw)
    for each in raw:
        check(each)


@pytest.mark.parametrize("at", [0, 31, 32, 99])
def test_one_document_that_is_walked_leaves_the_others_to_c(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = {
        "n": [1, Int64(2), 3.5, None],
        "at": [datetime(2026, 1, 1), Timestamp(1, 2)],
        "price": Decimal128("1.50"),
        "uuid": Binary(b"u" * 16, 4),
    }
    key = {"_id": ObjectId(bytes(12))}  # some others have the bytes of an infinite double
    events = [as_mongod_makes_it(each, "insert", key) for each in SURROUNDINGS]
    raw = [in_order({**event, "fullDocument": image}) for event in events * 17]
    raw[at] = with_image(b"\x0ea\0\x02\0\0\0x\0")
    expected = "".join(to_json(each, canonical=False) + "\n" for each in raw)
    walked: list[bytes] = []

    def walk(document: bytes, writers: Writers) -> str:
        walked.append(document)
        return written(document, writers)

    monkeypatch.setattr(json_lines, "written", walk)
    assert b"".join(json_lines.json_lines(raw, canonical=False)).decode() == expected
    assert walked == [raw[at]]


def test_some_lines_come_at_a_time() -> None:
    """What is decoded at once is bounded by events and by bytes."""
    small = bson.encode({**EVENT, "fullDocument": {"n": 1}, **PLACE})
    large = bson.encode({**EVENT, "fullDocument": {"t": "x" * 30_000}, **PLACE})
    blocks = [text.count(b"\n") for text in json_lines.json_lines([small] * 70, canonical=False)]
    assert blocks == [32, 32, 6]
    blocks = [text.count(b"\n") for text in json_lines.json_lines([large] * 7, canonical=False)]
    assert blocks == [3, 3, 1]
    assert list(json_lines.json_lines([], canonical=False)) == []


@quick
@given(st.binary(max_size=200))
def test_noise_is_an_error_and_nothing_worse(noise: bytes) -> None:
    raw = bson.encode({**EVENT, "fullDocument": {"a": 1}, **PLACE})
    for broken in (noise, raw[:60] + noise, raw[:4] + noise + raw[len(noise) + 4 :]):
        try:
            line = json_line(broken, canonical=False)
        except ValueError:
            continue
        assert repr(pairs(line)) == repr(pairs(to_json(broken, canonical=False)))
