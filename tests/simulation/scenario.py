"""What a seed chooses: the scopes, their handlers, the changes, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.start import NOW
from tailrace.stream import ChangeStreamOptions
from tests.simulation.destinations import COMMITS, Kind, Shape
from tests.simulation.faults import Outage, Rates
from tests.simulation.world import BEGINNING, ScopeShape

CALM, STORM = Rates(), Rates(fail=0.05, lie=0.05, hang=0.02)
_TARGETS = (("shop", "orders"), ("shop", None), (None, None))
_NAMES = ("orders", "users", "all")
ORDERS = ("pause", "resume", "seek", "snapshot", "restart")


@dataclass(frozen=True, slots=True)
class Part:
    """The faults of one part."""

    rates: Rates = CALM
    outages: Sequence[tuple[float, float, Outage]] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. All times are virtual seconds after its beginning."""

    seed: int
    scopes: Sequence[ScopeShape]
    destinations: Sequence[Sequence[Part]]
    """By scope and handler."""
    budget: int = 1 << 20
    seconds: float = 20.0
    """How long there are changes and faults."""
    changes: int = 30
    """About how many."""
    before: int = 0
    """About how many there were before the first process began."""
    ddl: float = 0.0
    """The share of changes that are DDL."""
    transactions: float = 0.1
    """The share that are transactions."""
    server: Part = Part()
    store: Part = Part()
    leases: Part = Part()
    members: int = 0
    """How many processes share the scopes; 0: one alone, without leases."""
    most_streams: int = 1000
    elections: Sequence[tuple[float, float]] = ()
    """When, and for how long there is no primary."""
    cuts: Sequence[tuple[float, float]] = ()
    """When the oplog loses what is older than so many seconds."""
    refuses_late: bool = False
    upgrade: float | None = None
    """When the server is upgraded from a version whose tokens have another format, if it is."""
    kills: float = 0
    """How many steps a process lives on average; 0: none is killed."""
    stops: float = 0
    """How many seconds until a process is stopped on average; 0: none is."""
    sleeps: Sequence[tuple[float, float]] = ()
    """When a process stops without noticing, and for how long."""
    crashes: Sequence[float] = ()
    """When all processes are killed."""
    orders: Sequence[tuple[float, str, str]] = ()
    """When an operator gives which order, for which handler of the first scope, or ``"all"``;
    empty: for any scope or handler."""
    restores: Sequence[tuple[float, float]] = ()
    """When a destination with a position of its own is backed up, and restored."""
    reloads: Sequence[float] = ()
    """When the configuration of a scope is changed."""


def scenario(seed: int) -> Scenario:
    """The run of a seed. Each part is faulty in some runs only: each fault also comes alone."""
    of, rare = random.Random(f"scenario {seed}"), random.Random(f"rare {seed}")
    seconds = of.choice([5.0, 20.0, 60.0])
    members = of.choice([0, 0, 1, 2, 2, 3])
    scopes = [_scope(of, name) for name in _NAMES[: of.choice([1, 1, 1, 2, 3])]]
    scopes = [replace(each, shapes=[_drawn(rare, s) for s in each.shapes]) for each in scopes]
    upgrade = rare.uniform(0, seconds) if rare.random() < 0.15 else None
    if upgrade is None:
        scopes = [_splitting(each) if rare.random() < 0.15 else each for each in scopes]
    most = sum(1 + each.catch_up_streams for each in scopes)
    return Scenario(
        seed,
        scopes,
        [[_part(of, seconds, outages=0.6) for _ in each.shapes] for each in scopes],
        budget=of.choice([1_000, 4_000, 20_000, 1 << 20]),
        seconds=seconds,
        changes=of.choice([10, 30, 100]),
        before=of.choice([0, 10, 30]),
        ddl=of.choice([0.0, 0.0, 0.05, 0.2]),
        server=_part(of, seconds),
        store=_part(of, seconds),
        leases=_part(of, seconds),
        members=members,
        most_streams=of.choice([1000, 1000, len(scopes), max(most - 1, len(scopes))]),
        elections=_times(of, seconds, [0, 0, 1, 4], [0, 1, 8]),
        cuts=_times(of, seconds, [0, 0, 0, 1, 3], [0, 1, 10]),
        refuses_late=of.random() < 0.5,
        kills=of.choice([0, 0, 500, 3_000]),
        stops=of.choice([0, 0, 15, 60]),
        sleeps=_times(of, seconds, [0, 0, 0, 1, 2] if members < 2 else [0, 1, 3], [1, 9, 30]),
        orders=[
            *((at, of.choice(ORDERS), "") for at, _ in _times(of, seconds, [0, 0, 0, 1, 4], [0])),
            *_snapshot_orders(rare, seconds),
            *_replay_orders(rare, seconds),
        ],
        reloads=[at for at, _ in _times(of, seconds, [0, 0, 0, 1, 3], [0])],
        upgrade=upgrade,
        restores=[(at * of_run, at) for at, of_run in _restores(rare, seconds)],
    )


def _replay_orders(of: random.Random, seconds: float) -> Iterator[tuple[float, str, str]]:
    """Some replays, of which some are cancelled; handlers that commit have to be paused for one."""
    for at, pauses in _times(of, seconds, [0, 0, 0, 1, 3], [0.0, 0.0, 1.0]):
        if pauses:
            yield at, "pause", "all"
        yield at + pauses, "replay", ""
        if of.random() < 0.3:
            yield at + of.uniform(0, 3), "replay cancel", ""
        if pauses:
            yield at + of.uniform(0, 10), "resume", "all"


def _restores(of: random.Random, seconds: float) -> list[tuple[float, float]]:
    """When, and how much of the time until then the backup has."""
    return _times(of, seconds, [0, 0, 0, 0, 1, 2], [0.0, 0.5, 0.9])


def _drawn(of: random.Random, one: Shape) -> Shape:
    return replace(one, on_ddl=of.random() < 0.7)


def _splitting(of: ScopeShape) -> ScopeShape:
    return replace(of, options=replace(of.options, split_large_events=True))


def _snapshot_orders(of: random.Random, seconds: float) -> Iterator[tuple[float, str, str]]:
    """Some snapshots that are paused, resumed or cancelled on their way."""
    for at, _ in _times(of, seconds, [0, 0, 0, 0, 1, 3], [0]):
        yield at, "snapshot", ""
        for _ in range(of.choice([1, 2, 4])):
            at += of.uniform(0, 2)
            yield at, f"snapshot {of.choice(['pause', 'pause', 'resume', 'cancel'])}", ""


def _scope(of: random.Random, name: str) -> ScopeShape:
    start, skips = of.choice([NOW, BEGINNING, BEGINNING]), of.random() < 0.5
    return ScopeShape(
        Scope(name, *of.choice(_TARGETS)),
        ChangeStreamOptions(batch_size=of.choice([None, 1, 2, 5, 20]), max_await_time_ms=1000),
        [shape(of) for _ in range(of.choice([1, 2, 2, 3]))],
        lanes=of.choice([1, 3, 64]),
        checkpoint_seconds=of.choice([0.3, 1.0, 5.0]),
        start=start,
        snapshot=of.random() < 0.3,
        skip_lost_history=skips,
        after_gap=skips and of.random() < 0.5,
        catch_up_streams=of.choice([1, 2]),
    )


def shape(of: random.Random) -> Shape:
    """A handler."""
    kind = of.choice(list(Kind))
    commits = kind in COMMITS
    halts = of.random() < 0.1
    failure = FailurePolicy(
        attempts=of.choice([1, 3, 10]),
        backoff=of.choice([Backoff(0, 0), Backoff(0.5, 5.0)]),
        timeout_seconds=of.choice([None, None, 5.0]),
        halt=halts,
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
        0.0 if commits or halts else of.choice([0.0, 0.0, 0.03]),
        of.choice([0.0, 0.0, 0.3]),
        fences=of.random() < 0.5,
        begins_apart=of.random() < 0.15,
        start=of.choice([NOW, BEGINNING]),
        snapshot=of.random() < 0.5,
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


def _times(
    of: random.Random, seconds: float, counts: Sequence[int], lengths: Sequence[float]
) -> list[tuple[float, float]]:
    """Some times, in order, each with a length."""
    return sorted((of.uniform(0, seconds), of.choice(lengths)) for _ in range(of.choice(counts)))
