"""What seeds of the simulation have shown, each as a scenario of its own."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.stream import ChangeStreamOptions
from tests.simulation.destinations import Kind, Shape
from tests.simulation.faults import Outage, Rates
from tests.simulation.run import run
from tests.simulation.scenario import Part, Scenario
from tests.simulation.world import ScopeShape

WAITS = FailurePolicy(attempts=3, backoff=Backoff(0, 0), outage_backoff=Backoff(0.1, 1.0))
BATCHES = Shape(Kind.BATCHES, 7, WAITS)
COMMITS = Shape(Kind.COMMITTING, 7, WAITS)
EVENTS = Shape(Kind.EVENTS, 3, WAITS)
STORES = Shape(Kind.TABLE, 7, WAITS)


OF_SCOPE = ("snapshot", "start", "stop_on_invalidate")


def away(since: float, until: float) -> Part:
    """A destination that is down for a while."""
    return Part(outages=[(since, until, Outage.ERROR)])


def of(
    *shapes: Shape,
    parts: dict[int, Part] | None = None,
    batch_size: int | None = None,
    splits: bool = False,
    collection: str | None = None,
    **fields: Any,
) -> Scenario:
    """A run without faults but those of ``fields``: a scope of a database, with handlers."""
    of_scope = {name: fields.pop(name) for name in OF_SCOPE if name in fields}
    options = ChangeStreamOptions(
        batch_size=batch_size, max_await_time_ms=1000, split_large_events=splits
    )
    scope = ScopeShape(Scope("orders", "shop", collection), options, shapes, **of_scope)
    destinations = [(parts or {}).get(n, Part()) for n in range(len(shapes))]
    return Scenario(0, [scope], [destinations], **{"seconds": 10.0, **fields})


TABLE = {
    "rows are read while a transaction comes in several replies": of(
        BATCHES,
        snapshot=True,
        batch_size=1,
        transactions=0.5,
        changes=200,
        before=20,
        orders=[(float(at), "snapshot", "all") for at in range(1, 10)],
    ),
    "an order for one handler while the stream is being opened": of(
        BATCHES, EVENTS, elections=[(1.0, 8.0)], orders=[(4.0, "seek", "batches-0")]
    ),
    "a crash before one of two handlers has the begin of a snapshot": of(
        BATCHES, EVENTS, parts={1: away(0.05, 4.0)}, snapshot=True, before=20, crashes=[2.0]
    ),
    "a restart of a committing handler that halted in an outage, while another one is behind": of(
        replace(COMMITS, failure=replace(WAITS, outage_backoff=Backoff(5.0, 5.0))),
        EVENTS,
        parts={0: away(1.0, 60.0), 1: away(2.0, 60.0)},
        budget=1_000,
        changes=200,
        elections=[(8.0, 4.0)],
        cuts=[(9.0, 0)],
        seconds=16.0,
    ),
    "replies that do not fit into memory, beside a snapshot": of(
        BATCHES, before=30, changes=200, budget=100, snapshot=True
    ),
    "a lease that is lost while a detached handler ends its calls": of(
        BATCHES,
        EVENTS,
        parts={1: Part(outages=[(1.0, 8.0, Outage.HANG)])},
        members=1,
        budget=2_000,
        changes=300,
        leases=Part(outages=[(2.0, 20.0, Outage.ERROR)]),
        seconds=21.0,
    ),
    "a handler comes back while the last rows of the others' snapshot wait for room": of(
        EVENTS,
        replace(BATCHES, begins_apart=True),
        parts={
            0: Part(Rates(latency_seconds=0.5)),
            1: Part(outages=[(at, at + 0.8, Outage.ERROR) for at in (1.0, 2.0, 3.0, 4.5, 6.0)]),
        },
        snapshot=True,
        before=60,
        changes=100,
        budget=1_000,
        orders=[(float(at), "snapshot", "all") for at in range(2, 10, 2)],
    ),
    "handlers that have different rows of a snapshot begin together again": of(
        EVENTS,
        replace(EVENTS, size=1),
        parts={n: Part(Rates(latency_seconds=seconds)) for n, seconds in enumerate((0.02, 0.1))},
        before=10,
        snapshot=True,
        budget=1_000,
        reloads=[0.6, 1.0, 1.4],
        changes=100,
        seconds=5.0,
    ),
    "a handler's own snapshot is over, and the scope never had one": of(
        EVENTS, replace(BATCHES, begins_apart=True, snapshot=True), before=10, crashes=[5.0]
    ),
    "a handler ends a snapshot alone that is paused for the others, and then goes on": of(
        BATCHES,
        EVENTS,
        parts={0: away(0.5, 2.5)},
        before=20,
        orders=[
            (0.9, "snapshot", "all"),
            (1.1, "snapshot pause", "all"),
            (3.0, "pause", "batches-0"),
            (5.0, "snapshot resume", "batches-0"),
            (7.0, "resume", "batches-0"),
            (12.0, "snapshot resume", "all"),
        ],
        seconds=15.0,
    ),
    "a handler ends its first snapshot while the one of the others is paused": of(
        BATCHES,
        replace(EVENTS, begins_apart=True, snapshot=True),
        parts={0: away(0.05, 2.5), 1: away(0.05, 6.0)},
        snapshot=True,
        before=20,
        orders=[(0.5, "snapshot pause", "all"), (12.0, "snapshot resume", "all")],
        seconds=15.0,
    ),
    "a pause of a handler's snapshot comes when that has just ended": of(
        replace(COMMITS, commit_events=5),
        EVENTS,
        before=10,
        batch_size=1,
        orders=[(1.3, "snapshot", "committing-0"), (3.4, "snapshot pause", "committing-0")],
        seconds=6.0,
    ),
}


@pytest.mark.parametrize("scenario", TABLE.values(), ids=TABLE)
def test_no_promise_is_broken_where_it_was(scenario: Scenario) -> None:
    for seed in range(4):
        assert run(replace(scenario, seed=seed)).failure == ""


SHOWS: dict[str, tuple[Scenario, str]] = {
    "a scope ends with each invalidate, when all handlers have come so far": (
        of(
            BATCHES,
            EVENTS,
            STORES,
            collection="orders",
            stop_on_invalidate=True,
            changes=100,
            ddl=0.1,
            before=20,
            budget=2_000,
            parts={1: Part(Rates(latency_seconds=0.2)), 2: away(2.0, 4.0)},
            elections=[(5.0, 1.0)],
        ),
        "log: scope.ended",
    ),
    "crashes while one of two handlers has an invalidate, and the other may have it": (
        of(
            BATCHES,
            EVENTS,
            collection="orders",
            changes=60,
            ddl=0.3,
            parts={0: Part(Rates(latency_seconds=0.2))},
            crashes=[at * 0.37 for at in range(1, 27)],
        ),
        "handled again",
    ),
    "a primary that is lost between the fragments of an event, and one handler on its own": (
        of(
            BATCHES,
            EVENTS,
            splits=True,
            batch_size=1,
            changes=100,
            budget=1_000,
            parts={1: away(1.0, 4.0)},
            server=Part(Rates(fail=0.1)),
            crashes=[5.2],
        ),
        "server: resumes within a split event",
    ),
    "a stream that is opened anew within a split event, while earlier changes have no answer": (
        of(
            BATCHES,
            EVENTS,
            splits=True,
            batch_size=1,
            changes=100,
            budget=2_000,
            server=Part(Rates(fail=0.2)),
            parts={
                0: Part(Rates(latency_seconds=2.0, fail=0.05)),
                1: Part(Rates(hang=0.1, hang_seconds=5.0)),
            },
            stops=2,
        ),
        "log: stream.reopening",
    ),
    "an upgrade that changes the tokens between a handler's own stream and the shared one": (
        of(
            STORES,
            EVENTS,
            batch_size=1,
            transactions=0.5,
            changes=100,
            budget=1_000,
            parts={0: away(1.0, 4.0)},
            upgrade=4.2,
            crashes=[4.4, 7.0],
        ),
        "log: subscription.attached",
    ),
    "a snapshot that is paused, outlives a crash, and goes on": (
        of(
            BATCHES,
            STORES,
            snapshot=True,
            before=30,
            parts={0: Part(Rates(latency_seconds=2.0))},
            orders=[(0.3, "snapshot pause", "all"), (5.0, "snapshot resume", "all")],
            crashes=[2.0],
        ),
        "log: snapshot.resumed",
    ),
    "a snapshot that is cancelled, and a further one": (
        of(
            BATCHES,
            STORES,
            snapshot=True,
            before=30,
            parts={0: Part(Rates(latency_seconds=2.0))},
            orders=[(0.3, "snapshot cancel", "all"), (4.0, "snapshot", "all")],
        ),
        "log: snapshot.cancelled",
    ),
    "a snapshot for one handler, in an outage of which it is paused": (
        of(
            BATCHES,
            STORES,
            before=30,
            parts={1: away(2.0, 5.0)},
            orders=[
                (1.5, "snapshot", "table-1"),
                (3.0, "snapshot pause", "table-1"),
                (7.0, "snapshot resume", "table-1"),
            ],
        ),
        "log: snapshot.done",
    ),
    "a destination that is restored in an outage, and one that is restored between two calls": (
        of(
            STORES,
            Shape(Kind.COMMITTING_TABLE, 7, WAITS, fences=True),
            BATCHES,
            changes=100,
            parts={0: away(3.0, 6.0)},
            restores=[(2.0, 5.0), (4.0, 7.0), (6.0, 6.5)],
        ),
        "destination: restored",
    ),
    "a destination that is emptied": (
        of(STORES, BATCHES, changes=100, snapshot=True, before=20, restores=[(0.0, 5.0)]),
        "destination: emptied",
    ),
    "a replay that waits out an outage while its process loses the lease, and takes it again": (
        of(
            BATCHES,
            EVENTS,
            members=1,
            changes=100,
            parts={0: away(3.0, 25.0)},
            orders=[(3.5, "replay", "batches-0")],
            leases=Part(outages=[(4.0, 18.0, Outage.ERROR)]),
            seconds=30.0,
        ),
        "replays",
    ),
    "replays of split events and of transactions, and kills in the middle": (
        of(
            BATCHES,
            EVENTS,
            splits=True,
            batch_size=1,
            transactions=0.3,
            changes=60,
            parts={1: Part(Rates(latency_seconds=0.3))},
            orders=[
                (float(at), "replay", f"{('batches-0', 'events-1')[at % 2]}") for at in range(2, 9)
            ],
            crashes=[3.6, 5.4],
        ),
        "replays",
    ),
    "a replay to a handler that is detached, and one that is cancelled": (
        of(
            BATCHES,
            EVENTS,
            changes=100,
            budget=1_000,
            parts={1: away(1.0, 6.0)},
            orders=[
                (4.0, "replay", "events-1"),
                (7.0, "replay", "batches-0"),
                (7.01, "replay cancel", "batches-0"),
                (8.0, "replay", "batches-0"),
            ],
        ),
        "replays",
    ),
}
"""Each with what some of its runs must have had."""


@pytest.mark.parametrize(("scenario", "shows"), SHOWS.values(), ids=SHOWS)
def test_no_promise_is_broken_where_it_might_be(scenario: Scenario, shows: str) -> None:
    results = [run(replace(scenario, seed=seed)) for seed in range(6)]
    assert [each.failure for each in results] == [""] * len(results)
    assert any(each.covered[shows] for each in results)


@pytest.mark.parametrize("kind", [Kind.TABLE, Kind.BATCHES, Kind.COMMITTING_TABLE])
def test_a_process_that_slept_through_its_lease_writes_into_the_void(kind: Kind) -> None:
    """A call that was on its way arrives when another process has followed the scope for long."""
    slow = Part(Rates(latency_seconds=2.0))
    slept = of(
        Shape(kind, 7, WAITS, fences=True),
        parts={0: slow},
        members=2,
        sleeps=[(4.0, 30.0)],
        changes=60,
        seconds=40.0,
    )
    for seed in range(30):
        result = run(replace(slept, seed=seed))
        assert result.failure == ""
        if result.covered["destination: call of a former process"]:
            return
    pytest.fail("no call came late")
