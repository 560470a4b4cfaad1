"""The stored record: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson.binary import Binary
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint, CheckpointKind, Progress, ResumeToken, StartPoint

UINT32 = st.integers(0, 2**32 - 1)
COUNTS = st.integers(0, 2**63 - 1)
TIMES = st.builds(Timestamp, UINT32, UINT32)

# Anything that BSON has and a server might one day put into a token.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0$"), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(2**63), 2**63 - 1).map(Int64)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"), max_size=20)
    | st.binary(max_size=20)
    | st.builds(Binary, st.binary(max_size=20), st.sampled_from([0, 5, 6, 128]))
    | st.binary(min_size=12, max_size=12).map(ObjectId)
    | st.decimals(allow_nan=False, places=3)
    .filter(lambda d: len(d.as_tuple().digits) < 30)
    .map(Decimal128)
    | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
    | TIMES
    | st.just(MaxKey()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TOKENS = st.builds(
    lambda data, rest: ResumeToken.of({"_data": data} | rest),
    VALUES,
    st.dictionaries(NAMES, VALUES, max_size=3),
)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)

PROGRESS = st.builds(
    Progress,
    token=st.none() | TOKENS,
    cluster_time=st.none() | TIMES,
    handled=st.frozensets(TOKENS.map(lambda token: token.digest), max_size=3),
    until=st.none() | TIMES,
)

CHECKPOINTS = st.builds(
    Checkpoint,
    scope=TEXT,
    kind=st.sampled_from(CheckpointKind),
    event_token=st.none() | TOKENS,
    high_water=st.none() | TOKENS,
    cluster_time=st.none() | TIMES,
    cluster=TEXT,
    fingerprint=TEXT,
    epoch=COUNTS,
    sequence=COUNTS,
    saved_at=st.datetimes(datetime(1970, 1, 1), datetime(9998, 1, 1), timezones=ZONES),
    owned=st.dictionaries(TEXT, TEXT, max_size=2),
    ahead=st.dictionaries(TEXT, PROGRESS, max_size=2),
).filter(lambda checkpoint: checkpoint.start_point != StartPoint())

GOOD = Checkpoint(
    scope="orders",
    kind=CheckpointKind.EVENT,
    event_token=ResumeToken.of({"_data": "8265"}),
    high_water=ResumeToken.of({"_data": "8266"}),
    cluster_time=Timestamp(1_700_000_000, 3),
    cluster="5f3a",
    fingerprint="c0ffee",
    epoch=4,
    sequence=17,
    saved_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
).to_document()

AHEAD = Progress(
    ResumeToken.of({"_data": "8267"}),
    Timestamp(1_700_000_001, 1),
    frozenset({"0123456789ab", "ba9876543210"}),
    Timestamp(1_700_000_002, 1),
).to_document()

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["event", "idle", "invalidate", "2026-11-30T12:00:00+00:00", "{}", "[]"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
# Texts that look like Extended JSON, each wrapper with something that does not belong in it.
WRAPPERS = [
    "$oid", "$date", "$numberLong", "$numberInt", "$numberDouble", "$numberDecimal", "$binary",
    "$timestamp", "$regularExpression", "$code", "$scope", "$uuid", "$dbPointer", "$ref", "$id",
    "$minKey", "$maxKey", "$undefined", "$symbol", "$regex", "$options", "$type",
]  # fmt: skip
EXTENDED = st.recursive(
    SCALARS | st.sampled_from(["99999999999999999999", "-1", "NaN", "1e9999", "AA==", "00"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*WRAPPERS, "_data", "base64", "subType", "t", "i"]), inner
        )
    ),
    max_leaves=6,
).map(lambda value: json.dumps({"_data": value}))


def read(document: Any) -> Checkpoint | None:
    """The checkpoint, or ``None`` if it was refused as it should be."""
    try:
        return Checkpoint.from_document(document, where="here")
    except CheckpointCorrupt as error:
        assert str(error).startswith("here: the checkpoint cannot be read: ")  # noqa: PT017
        return None


@given(CHECKPOINTS)
def test_what_is_written_is_read_again(checkpoint: Checkpoint) -> None:
    document = json.loads(json.dumps(checkpoint.to_document()))
    assert Checkpoint.from_document(document, where="here") == checkpoint


@given(TOKENS)
def test_a_token_comes_back_as_the_same_bytes(token: ResumeToken) -> None:
    assert ResumeToken.from_json(token.to_json()).raw == token.raw


@given(JSON)
def test_anything_else_is_corrupt(document: Any) -> None:
    assert read(document) is None


@given(st.dictionaries(st.sampled_from(list(GOOD)), JSON))
def test_a_damaged_record_is_corrupt_or_still_one(damage: dict[str, Any]) -> None:
    checkpoint = read(GOOD | damage)
    if checkpoint is not None:
        assert Checkpoint.from_document(checkpoint.to_document(), where="here") == checkpoint


@given(EXTENDED)
def test_a_damaged_token_is_corrupt_or_still_one(text: str) -> None:
    checkpoint = read(GOOD | {"high_water": text})
    if checkpoint is not None and checkpoint.high_water is not None:
        assert ResumeToken.from_json(checkpoint.high_water.to_json()) == checkpoint.high_water


@pytest.mark.parametrize("key", GOOD)
def test_a_missing_field_is_named(key: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=f"it lacks '{key}'"):
        Checkpoint.from_document({k: v for k, v in GOOD.items() if k != key}, where="here")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("format", True),
        ("format", "1"),
        ("scope", None),
        ("kind", "odd"),
        ("kind", []),
        ("event_token", 5),
        ("event_token", ""),
        ("event_token", "[]"),
        ("high_water", {"_data": "8265"}),
        ("high_water", '{"_data": {"$oid": "x"}}'),
        ("high_water", '{"_data": {"$numberDecimal": "x"}}'),
        ("high_water", '{"_data": {"$date": {"$numberLong": "99999999999999999999"}}}'),
        ("high_water", '{"_data": 99999999999999999999}'),
        ("high_water", '{"a\\u0000b": 1}'),
        ("high_water", '{"_data": "\\ud800"}'),
        ("high_water", '{"a":' * 100_000),
        ("cluster_time", [1]),
        ("cluster_time", [1, 2, 3]),
        ("cluster_time", [-1, 0]),
        ("cluster_time", [2**32, 0]),
        ("cluster_time", [1.5, 0]),
        ("cluster_time", [True, 0]),
        ("cluster_time", ["1", "2"]),
        ("cluster_time", {"t": 1, "i": 2}),
        ("cluster_time", 5),
        ("cluster", 5),
        ("fingerprint", None),
        ("epoch", -1),
        ("epoch", 2**63),
        ("epoch", 1.0),
        ("epoch", True),
        ("sequence", "1"),
        ("sequence", -1),
        ("saved_at", 5),
        ("saved_at", "yesterday"),
        ("saved_at", "2026-11-30T12:00:00"),
        ("saved_at", "0001-01-01T00:00:00+10:00"),
        ("owned", ["audit"]),
        ("ahead", ["audit"]),
        ("ahead", {"audit": "8265"}),
        ("ahead", {"audit": AHEAD | {"token": 5}}),
        ("ahead", {"audit": AHEAD | {"handled": ["0123456789ab"]}}),
        ("ahead", {"audit": AHEAD | {"handled": "0123456789a"}}),
        ("ahead", {"audit": AHEAD | {"handled": "0123456789AB"}}),
        ("ahead", {"audit": AHEAD | {"until": 5}}),
        ("ahead", {"audit": {}}),
    ],
)
def test_a_wrong_field_is_corrupt(key: str, value: Any) -> None:
    with pytest.raises(CheckpointCorrupt, match=r"^here: .*tailrace checkpoints set"):
        Checkpoint.from_document(GOOD | {key: value}, where="here")


def test_a_record_of_an_earlier_version_has_nothing_ahead() -> None:
    checkpoint = Checkpoint.from_document(GOOD, where="here")
    assert (checkpoint.owned, checkpoint.ahead) == ({}, {})
    assert GOOD.keys() == checkpoint.to_document().keys()


def test_single_events_take_twelve_characters_each() -> None:
    document = GOOD | {"ahead": {"audit": AHEAD}}
    checkpoint = Checkpoint.from_document(document, where="here")
    assert checkpoint.ahead["audit"].handled == {"0123456789ab", "ba9876543210"}
    assert checkpoint.to_document() == document
    assert AHEAD["handled"] == "0123456789abba9876543210"


def test_a_record_without_a_position_is_corrupt() -> None:
    empty = {"event_token": None, "high_water": None, "cluster_time": None}
    with pytest.raises(CheckpointCorrupt, match="neither a token nor a time"):
        Checkpoint.from_document(GOOD | empty, where="here")


def test_the_way_on_depends_on_the_kind() -> None:
    event = Checkpoint.from_document(GOOD, where="here")
    invalidate = replace(event, kind=CheckpointKind.INVALIDATE)
    time = replace(event, event_token=None, high_water=None)
    assert event.start_point == StartPoint(resume_after=event.high_water)
    assert replace(event, high_water=None).start_point == StartPoint(resume_after=event.event_token)
    assert invalidate.start_point == StartPoint(start_after=event.high_water)
    assert time.start_point == StartPoint(at_operation_time=event.cluster_time)
