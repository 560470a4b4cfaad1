"""Lines written the quick way say what walking says, and are written so where they can be."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Code, DatetimeMS, Decimal128, Int64, ObjectId, Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from service.model import json_lines
from service.model.extended_json import to_json
from service.model.json_lines import json_line
from tests.unit.model.documents import documents, quick
from tests.unit.model.test_layout import events

EVENT = {
    "_id": {"_data": "82AB"},
    "operationType": "update",
    "clusterTime": Timestamp(2**32 - 1, 7),
    "wallTime": datetime(2026, 2, 3, 4, 5, 6, 789_000, UTC),
}
PLACE = {"ns": {"db": "shop", "coll": 'or"ders'}, "documentKey": {"_id": ObjectId(b"k" * 12)}}


def pairs(line: bytes | str) -> Any:
    """What a parser sees: values, and keys in their order and as often as they stand there."""
    return json.loads(line, object_pairs_hook=list)


def check(raw: bytes) -> None:
    """Repr, because -0.0 and NaN are not what they equal."""
    line = json_line(raw, canonical=False)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert repr(pairs(line)) == repr(pairs(to_json(raw, canonical=False)))


@quick
@given(events())
def test_events_of_every_kind(event: dict[str, Any]) -> None:
    raw = bson.encode(event)
    check(raw)
    assert json_line(raw, canonical=True).decode() == to_json(raw, canonical=True) + "\n"


@quick
@given(documents, documents)
def test_documents_of_every_type(image: dict[str, Any], update: dict[str, Any]) -> None:
    check(bson.encode({**EVENT, "fullDocument": image, **PLACE, "updateDescription": update}))


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


@pytest.mark.parametrize(
    "element",
    [
        b"\x06a\0",
        b"\x0ea\0\x02\0\0\0x\0",
        b"\x0ca\0\x02\0\0\0x\0" + b"o" * 12,
        b"\x10a\0\1\0\0\0\x10a\0\2\0\0\0",
        b"\x02a\0\x02\0\0\0\xff\0",
    ],
    ids=["undefined", "symbol", "dbPointer", "repeated key", "no UTF-8"],
)
def test_what_decoding_would_lose_is_walked(element: bytes) -> None:
    image = (len(element) + 5).to_bytes(4, "little") + element + b"\0"
    body = bson.encode(EVENT)[4:-1] + b"\x03fullDocument\0" + image + bson.encode(PLACE)[4:-1]
    raw = (len(body) + 5).to_bytes(4, "little") + body + b"\0"
    check(raw)
    assert json_line(raw, canonical=False) == to_json(raw, canonical=False).encode() + b"\n"


def test_an_event_as_mongod_makes_it_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    image = {
        "_id": ObjectId(),
        "n": [1, Int64(2), 3.5, None],
        "at": datetime(2026, 1, 1),
        "t": Timestamp(1, 2),
        "price": Decimal128("1.50"),
        "uuid": Binary(b"u" * 16, 4),
    }
    raw = bson.encode(
        {**EVENT, "fullDocument": image, **PLACE, "updateDescription": {"updatedFields": {"n": 1}}}
    )
    expected = to_json(raw, canonical=False).encode() + b"\n"
    json_lines._namespace.cache_clear()
    json_line(raw, canonical=False)  # the namespace is walked once

    def walked(*_: object, **__: object) -> str:
        raise AssertionError("walked")

    monkeypatch.setattr(json_lines, "to_json", walked)
    assert json_line(raw, canonical=False) == expected


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_malformed_events_are_errors(cut: int) -> None:
    raw = bson.encode({**EVENT, "fullDocument": {"a": "text"}, **PLACE})
    for broken in (raw[:-cut], raw[:-cut] + b"\xff" * cut):
        with pytest.raises(ValueError, match="malformed BSON"):
            json_line(broken, canonical=False)


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
