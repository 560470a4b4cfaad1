"""The time of the stream within and after a reply, and how a reply is cut there."""

from dataclasses import replace
from itertools import pairwise

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.read.read_order import caught_up_to, split
from tailrace.event import RawBatch
from tailrace.model import ResumeToken
from tests.unit.engine.changes import EPOCH, batch, change, time, token

EVENT, MARK = "2B022C0100296E5A1004", "2B0229296E04"


def before(n: int) -> Timestamp:
    return Timestamp(EPOCH + n, 0)


def batch_of(times: list[int], behind: ResumeToken | None) -> RawBatch:
    events = [change(n, _id=token(n, EVENT).document) for n in times]
    return replace(batch(events), token=behind)


START = token(3, MARK)
CASES = {
    "nothing, up to a mark": ([], token(5, MARK), (time(5), True)),
    "nothing, behind the last event": ([], token(5, EVENT), (time(5), True)),
    "nothing, at the mark of the start": ([], START, (before(3), False)),
    "events, up to a mark behind them": ([4, 5], token(7, MARK), (time(7), True)),
    "events, up to the last of them": ([4, 5], token(5, EVENT), (before(5), False)),
    "a part of an event": ([4], None, (None, False)),
    "a token that tells no time": ([], ResumeToken.of({"_data": "x"}), (None, False)),
}


@pytest.mark.parametrize("case", CASES)
def test_where_the_stream_stands(case: str) -> None:
    times, behind, expected = CASES[case]
    assert caught_up_to(batch_of(times, behind), START, sharded=False) == expected


@pytest.mark.parametrize("times", [[], [4, 5]])
def test_a_mongos_may_always_send_more_of_the_last_time(times: list[int]) -> None:
    for kind in (EVENT, MARK):
        found = caught_up_to(batch_of(times, token(7, kind)), START, sharded=True)
        assert found == (before(7), False)


def test_a_token_without_a_time_leaves_that_of_the_last_event() -> None:
    opaque = ResumeToken.of({"_data": "x"})
    assert caught_up_to(batch_of([4, 5], opaque), START, sharded=False) == (before(5), False)


def test_the_time_before_the_first_of_a_second_is_in_the_one_before() -> None:
    first = ResumeToken.of({"_data": f"82{7:08X}{0:08X}{EVENT}"})
    raw = bson.encode({"_id": first.document, "clusterTime": Timestamp(7, 0)})
    whole = RawBatch(raw, [0, len(raw)], first)
    assert caught_up_to(whole, START, sharded=False)[0] == Timestamp(6, 2**32 - 1)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(0, 10), st.integers(1, 7))
def test_a_cut_lies_between_the_times(times: list[int], cut: int, size: int) -> None:
    whole = batch_of(sorted(times), None)
    early, late = split(whole.slices(size), time(cut))
    found = [
        [event.cluster_time for slice_ in slices for event in slice_.events()]
        for slices in (early, late)
    ]
    assert found == [
        [time(each) for each in sorted(times) if each <= cut],
        [time(each) for each in sorted(times) if each > cut],
    ]
    assert all(len(slice_) for slice_ in (*early, *late))
    assert all(one.bounds[-1] <= other.bounds[0] for one, other in pairwise([*early, *late]))
