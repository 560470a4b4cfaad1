"""The survey of a reply: where its events lie, and of which types they are."""

import struct
from collections import Counter
from contextlib import suppress
from itertools import accumulate
from typing import Any

import bson
import pytest
from bson import Binary, Int64
from bson.timestamp import Timestamp
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace.event import Slice
from tailrace.event import survey as surveys
from tailrace.event.batch import join
from tailrace.event.survey import Survey, survey, survey_array
from tests.scripted.wire import array, in_order
from tests.unit.event.documents import batch_of, quick
from tests.unit.event.events import events

TYPES = ("insert", "update", "refineCollectionShardKey", "größer")


def change(token: str, operation: str, n: int = 0) -> dict[str, Any]:
    return {
        "_id": {"_data": token},
        "operationType": operation,
        "clusterTime": Timestamp(1, n),
        "n": "x" * n,
    }


def in_transaction(number: int) -> dict[str, Any]:
    """What stands first in events of that transaction; zero is none."""
    lsid = {"id": Binary(b"i" * 16, 4), "uid": b"u" * 32}
    return {"txnNumber": Int64(number), "lsid": lsid} if number else {}


shapes = st.tuples(st.integers(0, 9), st.sampled_from(TYPES), st.integers(0, 2))


@quick
@given(st.lists(shapes, min_size=1, max_size=150))
def test_bounds_and_types_are_those_of_each_event(shapes: list[tuple[int, str, int]]) -> None:
    """More than a hundred: names of three digits. Tokens and events of many lengths."""
    events = [
        in_order({**in_transaction(number), **change("8" * n, operation, n)})
        for n, operation, number in shapes
    ]
    whole = b"before" + array(events)
    bounds, found = survey_array(whole, len(b"before"))
    assert list(Slice(whole, bounds).raw()) == events
    assert bounds[-1] == len(whole) - 1
    assert found.operations == Counter(operation for _, operation, _ in shapes)
    assert found == survey(whole, bounds)


def test_what_mongod_sends_takes_the_quick_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of two transactions, and of none."""
    monkeypatch.setattr(surveys, "_each", None)
    events = [{**in_transaction(n // 10), **change("82" * n, "insert", n)} for n in range(30)]
    for some in (events, events[::-1], [events[n * 7 % 30] for n in range(30)]):
        whole = array([in_order(event) for event in some]) + b"what is behind" * 30
        assert survey_array(whole, 0)[1].operations == {"insert": 30}


@quick
@given(st.integers(-5, 2**31 - 1), st.integers(0, 2))
def test_a_wrong_length_is_refused(length: int, which: int) -> None:
    """And ends: neither of the passes goes back, or for ever on.

    Only a length that leads to the end of a later event cannot be told without decoding.
    """
    events = [bytearray(bson.encode(change("82", "insert", n + 30))) for n in range(3)]
    ends = accumulate(len(event) + len(b"\x030\0") for event in events[which:])
    assume(length + len(b"\x030\0") not in ends)
    events[which][:4] = (length % 2**32).to_bytes(4, "little")
    whole = array([bytes(event) for event in events])
    with pytest.raises((ValueError, struct.error)):
        survey_array(whole, 0)


def carefully(whole: bytes) -> tuple[list[int], Survey] | None:
    """Bounds and survey without any place; ``None`` of what is no array of events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(surveys, "_alike", lambda *_: None)
        try:
            bounds, found = survey_array(whole, 0)
            for event in Slice(whole, bounds).raw():
                bson.decode(event)
        except (bson.errors.BSONError, ValueError, LookupError, struct.error):
            return None
    return list(bounds), found


def check(whole: bytes) -> bool:
    """Whether it is an array of events. If so, all passes say the same."""
    expected = carefully(whole)
    if expected is None:
        with suppress(ValueError, LookupError, struct.error):
            survey_array(whole, 0)
        return False
    bounds, found = survey_array(whole, 0)
    assert (list(bounds), found) == expected
    return True


@pytest.mark.parametrize("numbers", [(0,), (1,), (1, 1, 0), (0, 1, 2), (1, 0, 1)], ids=str)
def test_a_wrong_byte_changes_nothing_that_is_found(numbers: tuple[int, ...]) -> None:
    """Each is wrong once, in three ways; and the array ends early, at each of its bytes."""
    events = [in_order({**in_transaction(n), **change("82", "insert")}) for n in numbers]
    whole = array(events) + b"what is behind" * 30
    assert check(whole)
    for place in range(sum(map(len, events))):
        for flip in (0x01, 0x80, 0xFF):
            check(bytes((*whole[:place], whole[place] ^ flip, *whole[place + 1 :])))
        check(whole[:place])
        check(place.to_bytes(4, "little") + whole[4:])


@quick
@given(st.lists(events(), max_size=9))
def test_a_survey_counts_types_and_finds_the_first_event_without_a_token(
    found: list[dict[str, Any]],
) -> None:
    types = Counter(event["operationType"] for event in found)
    encoded = [in_order(event) for event in found]
    nameless = bson.encode({"operationType": "insert", "fullDocument": {"_id": {"_data": "82"}}})
    assert survey(*join(encoded)) == Survey(types)
    _, result = survey_array(array([*encoded, nameless, *encoded]), 0)
    assert result == Survey(types, len(found))


def test_a_survey_of_long_names_is_exact() -> None:
    """Names that are alike in all that is looked at first, and tokens of different lengths."""
    long = ["refineCollectionShardKey", "refineCollectionShardKex", "dropDatabase", "x" * 19]
    found = [
        {"_id": {"_data": "8" * number}, "operationType": name} for number, name in enumerate(long)
    ]
    assert batch_of(found).operations() == Counter(long)
