"""What a seed chooses: the scope, its handlers, the changes, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.model import Scope, StartPoint
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.stream import ChangeStreamOptions
from tailrace.testing.oplog import START
from tests.simulation.destinations import COMMITS, Kind, Shape
from tests.simulation.faults import Outage, Rates
from tests.simulation.process import Service, plan_of

CALM, STORM = Rates(), Rates(fail=0.05, lie=0.05, hang=0.02)
SCOPES = (
    Scope("orders", "shop", "orders"),
    Scope("orders", "shop", None),
    Scope("orders", None, None),
)


@dataclass(frozen=True, slots=True)
class Part:
    """The faults of one part."""

    rates: Rates = CALM
    outages: Sequence[tuple[float, float, Outage]] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. All times are virtual seconds after its beginning."""

    seed: int
    service: Service
    shapes: Sequence[Shape]
    seconds: float
    """How long there are changes and faults."""
    changes: int
    """About how many."""
    ddl: float
    """The share of changes that are DDL."""
    server: Part
    store: Part
    destinations: Sequence[Part]
    most_streams: int
    elections: Sequence[tuple[float, float]]
    """When, and for how long there is no primary."""
    cuts: Sequence[tuple[float, float]]
    """When the oplog loses what is older than so many seconds."""
    refuses_late: bool
    kills: float
    """How many steps a process lives on average; 0: none is killed."""
    stops: float
    """How many seconds until a process is stopped on average; 0: none is."""
    orders: Sequence[tuple[float, str]]
    """When an operator gives which order."""


def scenario(seed: int) -> Scenario:
    """The run of a seed. Each part is faulty in some runs only: each fault also comes alone."""
    of = random.Random(f"scenario {seed}")
    seconds = of.choice([5.0, 20.0, 60.0])
    options = ChangeStreamOptions(batch_size=of.choice([None, 1, 2, 5, 20]), max_await_time_ms=1000)
    start = StartPoint(at_operation_time=START)
    plan = plan_of(
        of.choice(SCOPES),
        options,
        lanes=of.choice([1, 3, 64]),
        checkpoint_seconds=of.choice([0.1, 1.0, 5.0]),
        start=start,
        skip_lost_history=of.random() < 0.5,
    )
    shapes = [_shape(of) for _ in range(of.choice([1, 2, 2, 3]))]
    return Scenario(
        seed,
        Service(plan, of.choice([1_000, 4_000, 20_000, 1 << 20])),
        shapes,
        seconds,
        of.choice([10, 30, 100]),
        of.choice([0.0, 0.0, 0.05, 0.2]),
        _part(of, seconds),
        _part(of, seconds),
        [_part(of, seconds, outages=0.6) for _ in shapes],
        of.choice([1000, 1000, 1, 2]),
        [(of.uniform(0, seconds), of.choice([0, 1, 8])) for _ in range(of.choice([0, 0, 1, 4]))],
        [
            (of.uniform(0, seconds), of.choice([0, 1, 10]))
            for _ in range(of.choice([0, 0, 0, 1, 3]))
        ],
        of.random() < 0.5,
        of.choice([0, 0, 500, 3_000]),
        of.choice([0, 0, 15, 60]),
        _orders(of, seconds),
    )


def _shape(of: random.Random) -> Shape:
    kind = of.choice(list(Kind))
    commits = kind in COMMITS
    failure = FailurePolicy(
        attempts=of.choice([1, 3, 10]),
        backoff=of.choice([Backoff(0, 0), Backoff(0.5, 5.0)]),
        timeout_seconds=of.choice([None, None, 5.0]),
        max_consecutive=10**6,
        max_ratio=1.0,
        outage_backoff=of.choice([Backoff(0.1, 1.0), Backoff(0.5, 15.0)]),
    )
    return Shape(
        kind,
        of.choice([1, 2, 7, 50]),
        failure,
        of.choice([1, 5, 100]),
        of.choice([0.0, 1.0, 20.0]),
        0.0 if commits else of.choice([0.0, 0.0, 0.03]),
        of.choice([0.0, 0.0, 0.3]),
    )


def _part(of: random.Random, seconds: float, outages: float = 0.3) -> Part:
    rates = of.choice([CALM, CALM, STORM, Rates(latency_seconds=0.0)])
    if of.random() >= outages:
        return Part(rates)
    found, at = [], of.uniform(0, seconds / 2)
    while at < seconds and len(found) < 20:
        lasts = of.choice([0.5, 5.0, seconds / 2])
        found.append((at, at + lasts, of.choice(list(Outage))))
        at += lasts + of.choice([1.0, seconds / 4])
    return Part(rates, found)


def _orders(of: random.Random, seconds: float) -> list[tuple[float, str]]:
    times = sorted(of.uniform(0, seconds) for _ in range(of.choice([0, 0, 0, 1, 4])))
    return [(at, of.choice(["pause", "resume", "seek"])) for at in times]
