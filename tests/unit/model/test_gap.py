"""The stored record of a gap: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CheckpointCorrupt
from tailrace.model import ResumeToken
from tailrace.model.gap import Gap
from tests.unit.model.test_checkpoint import EXTENDED, JSON, TEXT, TIMES, TOKENS, ZONES

GAPS = st.builds(
    Gap,
    scope=TEXT,
    token=st.none() | TOKENS,
    since=st.none() | TIMES,
    until=st.none() | TIMES,
    reason=TEXT,
    policy=TEXT,
    recorded_at=st.datetimes(datetime(1970, 1, 1), datetime(9998, 1, 1), timezones=ZONES),
)
GAP = Gap(
    scope="orders",
    token=ResumeToken.of({"_data": "8265"}),
    since=Timestamp(1_700_000_000, 3),
    until=Timestamp(1_700_086_400, 1),
    reason="the history is lost (code 286 ChangeStreamHistoryLost)",
    policy="skip",
    recorded_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
)
GOOD = GAP.to_document()


def read(document: Any) -> Gap | None:
    """The gap, or ``None`` if it was refused as it should be."""
    try:
        return Gap.from_document(document, where="here")
    except CheckpointCorrupt as error:
        assert str(error).startswith("here: the gap record cannot be read: ")  # noqa: PT017
        return None


def through_json(gap: Gap) -> Gap:
    return Gap.from_document(json.loads(json.dumps(gap.to_document())), where="here")


@given(GAPS)
def test_what_is_written_is_read_again(gap: Gap) -> None:
    assert through_json(gap) == gap
    assert through_json(gap).digest == gap.digest


@given(GAPS, GAPS)
def test_the_digest_is_that_of_the_whole(one: Gap, other: Gap) -> None:
    assert (one.digest == other.digest) == (one == other)


@given(GAPS, ZONES)
def test_the_zone_of_the_clock_does_not_matter(gap: Gap, zone: timezone) -> None:
    assert replace(gap, recorded_at=gap.recorded_at.astimezone(zone)).digest == gap.digest


def test_a_digest_that_was_stored_stays() -> None:
    """Stores know gaps by it: one that another release computes would store a gap twice."""
    assert GAP.digest == "21868206d82733905b15720d23c9dba0"


@given(GAPS, st.integers(1, 10**12))
def test_the_later_one_is_behind(gap: Gap, microseconds: int) -> None:
    later = replace(gap, recorded_at=gap.recorded_at + timedelta(microseconds=microseconds))
    assert gap.order < later.order


@given(JSON)
def test_anything_else_is_corrupt(document: Any) -> None:
    assert read(document) is None


@given(st.dictionaries(st.sampled_from(list(GOOD)), JSON))
def test_a_damaged_record_is_corrupt_or_still_one(damage: dict[str, Any]) -> None:
    gap = read(GOOD | damage)
    if gap is not None:
        assert through_json(gap) == gap


@given(EXTENDED)
def test_a_damaged_token_is_corrupt_or_still_one(text: str) -> None:
    gap = read(GOOD | {"token": text})
    if gap is not None and gap.token is not None:
        assert ResumeToken.from_json(gap.token.to_json()) == gap.token


@pytest.mark.parametrize("key", GOOD)
def test_a_missing_field_is_named(key: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=f"it lacks '{key}'"):
        Gap.from_document({k: v for k, v in GOOD.items() if k != key}, where="here")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("format", True),
        ("format", "1"),
        ("scope", None),
        ("scope", 5),
        ("token", 5),
        ("token", ""),
        ("token", "[]"),
        ("token", {"_data": "8265"}),
        ("token", '{"_data": {"$oid": "x"}}'),
        ("token", '{"a":' * 100_000),
        ("since", [1]),
        ("since", [1, 2, 3]),
        ("since", [-1, 0]),
        ("since", [2**32, 0]),
        ("since", [1.5, 0]),
        ("since", [True, 0]),
        ("since", ["1", "2"]),
        ("since", {"t": 1, "i": 2}),
        ("until", 5),
        ("until", [0, 2**32]),
        ("until", "2026-11-30T12:00:00+00:00"),
        ("reason", None),
        ("policy", True),
        ("recorded_at", None),
        ("recorded_at", 5),
        ("recorded_at", "yesterday"),
        ("recorded_at", "2026-11-30T12:00:00"),
        ("recorded_at", "0001-01-01T00:00:00+10:00"),
    ],
)
def test_a_wrong_field_is_corrupt(key: str, value: Any) -> None:
    with pytest.raises(CheckpointCorrupt, match=r"^here: .*remove this record by hand"):
        Gap.from_document(GOOD | {key: value}, where="here")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "format 2 is not 1"),
        ("scope", None, "scope is NoneType, not str"),
        ("since", [1], "since is not a list of seconds and increment"),
        ("until", 5, "until is not a list of seconds and increment"),
        ("recorded_at", "2026-11-30", "recorded_at is no ISO time with its zone"),
    ],
)
def test_the_message_names_the_field(key: str, value: Any, message: str) -> None:
    with pytest.raises(CheckpointCorrupt) as caught:
        Gap.from_document(GOOD | {key: value}, where="here")
    assert f"cannot be read: {message}." in str(caught.value)


def test_what_is_not_known_is_left_out() -> None:
    gap = replace(GAP, token=None, since=None, until=None)
    assert through_json(gap) == gap
