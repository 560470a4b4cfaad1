"""How changes are counted by their latency, a slice at a time."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import RawBatch
from tailrace.event.batch import join
from tailrace.observe.latency import LATENCIES, Latency
from tests.scripted.wire import in_order
from tests.unit.engine.changes import EPOCH, change

NOW = 1_700_000_000.0


def latency() -> Latency:
    return Latency(lambda: NOW)


@pytest.mark.parametrize(
    ("events", "ages", "buckets"),
    [
        (1, (0.3, 0.3), {0.5: 1}),
        (64, (0.3, 0.26), {0.5: 64}),
        (2, (2.0, 0.002), {0.005: 1, 2.5: 1}),
        (3, (18.0, 0.0), {0.005: 1, 10: 1, 30: 1}),
        (1, (2.0, 0.0), {2.5: 1}),
        (4, (0.0, 2.1), {0.005: 1, 1: 1, 2.5: 2}),
        (3, (-4.0, -5.0), {0.005: 3}),
        (2, (1e6, 1e6), {None: 2}),
    ],
    ids=[
        "one change",
        "a slice within a bucket",
        "two changes that are far apart",
        "a slice over several buckets",
        "one that is wanted counts by the oldest",
        "another shard's clock",
        "this machine's clock is behind the server's",
        "older than the last bound",
    ],
)
def test_a_slice_is_counted_at_once(
    events: int, ages: tuple[float, float], buckets: dict[float | None, int]
) -> None:
    seen = latency()
    seen.handled(events, NOW - ages[0], NOW - ages[1])
    counts = dict(zip([*LATENCIES, None], seen.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == buckets
    assert seen.seconds == pytest.approx(events * sum(max(age, 0) for age in ages) / 2)


@given(st.integers(1, 500), st.floats(0, 1e5), st.floats(0, 1e5))
def test_every_change_is_counted_once(events: int, oldest: float, newest: float) -> None:
    seen = latency()
    seen.handled(events, NOW - oldest, NOW - newest)
    assert sum(seen.counts) == events
    assert min(seen.counts) >= 0


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"wallTime": "now"}, NOW + 0.25),
        ({}, EPOCH + 7),
        ({"clusterTime": None}, None),
    ],
    ids=["wall time", "before server 6.0", "removed by the pipeline"],
)
def test_a_change_is_timed_by_the_servers_clock(
    fields: dict[str, Any], seconds: float | None
) -> None:
    from bson.datetime_ms import DatetimeMS

    event = change(7) | fields
    if "wallTime" in fields:
        event["wallTime"] = DatetimeMS(int(NOW * 1000) + 250)
    (slice_,) = RawBatch(*join([in_order(event)]), None).slices()
    assert slice_.changed_at() == (None if seconds is None else (seconds, seconds))


def test_the_bounds_grow() -> None:
    assert all(one < other for one, other in pairwise(LATENCIES))
