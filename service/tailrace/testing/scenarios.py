"""The faults that a check tries, one after another, on one history."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, TypeAlias

from tailrace.testing.faults import Fault, Method, When
from tailrace.testing.harness import Harness
from tailrace.testing.history import ChangeHistory


class FaultKind(StrEnum):
    """What a fault is about; the advice depends on it."""

    PLAIN = "no fault"
    ERROR = "an error"
    REPEAT = "a restart"
    KILL = "a kill"
    RESTORE = "a restored backup"
    HAND_OVER = "a hand-over"


Plan: TypeAlias = Callable[[Harness, int], Fault | None]
Happens: TypeAlias = Callable[[Harness, ChangeHistory], Awaitable[None]]
Backup: TypeAlias = Callable[[], Callable[[], Any] | Awaitable[Callable[[], Any]]]
"""Copies what the destination holds, with its positions; returns what puts the copy back."""


def _nothing(harness: Harness, step: int) -> None:
    """Plans no fault."""


async def _burst(harness: Harness, history: ChangeHistory) -> None:
    history.burst()


@dataclass(frozen=True, slots=True)
class Scenario:
    """``plan`` plans the fault, and then the changes of ``happens`` meet it.

    ``by_step``: the fault happens at the n-th ``await`` of a call; it is tried with growing n,
    until no call awaits as often.
    """

    kind: FaultKind
    name: str
    plan: Plan = _nothing
    happens: Happens = _burst
    by_step: bool = False


def scenarios(*, once: bool, drops: bool, backup: Backup | None = None) -> Iterator[Scenario]:
    """The faults, from the harmless ones on. ``drops``: the destination applies a drop."""

    async def drop(harness: Harness, history: ChangeHistory) -> None:
        history.burst()
        if not drops:
            history.clear()
        history.drop()
        history.burst()

    yield Scenario(FaultKind.PLAIN, "a snapshot of what was there before", happens=_wait)
    yield Scenario(FaultKind.PLAIN, "changes without a fault")
    yield Scenario(FaultKind.PLAIN, "a dropped collection", happens=drop)
    yield Scenario(FaultKind.PLAIN, "another snapshot", happens=_snapshot)
    yield from _errors()
    yield Scenario(FaultKind.REPEAT, "a stop and a start", happens=_restart)
    yield Scenario(FaultKind.REPEAT, "a start from an older checkpoint", happens=_set_back)
    for happens, of in ((_burst, ""), (_snapshot, " of a snapshot"), (drop, " around a drop")):
        yield Scenario(FaultKind.KILL, f"a kill before a call{of}", _kill("before"), happens)
        yield Scenario(
            FaultKind.KILL, f"a kill in a call{of}, at await", _kill("inside"), happens, True
        )
        yield Scenario(FaultKind.KILL, f"a kill after a call{of}", _kill("after"), happens)
    if drops:
        for when in ("before", "after"):
            plan = _kill("before" if when == "before" else "after", "on_ddl")
            yield Scenario(FaultKind.KILL, f"a kill {when} on_ddl", plan, drop)
    yield from _around_commits()
    if backup is not None:
        yield from _restores(backup)
    if once:
        yield from _hand_overs()


def series(seed: int, *, once: bool, drops: bool) -> Scenario:
    """Two to four of the faults at once: one may happen while another one is recovered from.

    The same seed is the same series. None has a restored backup: one of the rows of a snapshot
    alone counts as empty, and these do not come again.
    """
    random = Random(seed)
    possible = list(scenarios(once=once, drops=drops))
    chosen = random.sample(possible, random.randint(2, 4))
    steps = [random.randint(1, 12) for _ in chosen]

    def plan(harness: Harness, step: int) -> None:
        for scenario, at in zip(chosen, steps, strict=True):
            scenario.plan(harness, at)

    async def happens(harness: Harness, history: ChangeHistory) -> None:
        for scenario in chosen:
            await scenario.happens(harness, history)

    parts = [
        f"{one.name} {at}" if one.by_step else one.name
        for one, at in zip(chosen, steps, strict=True)
    ]
    kinds = list(FaultKind)
    kind = max((scenario.kind for scenario in chosen), key=kinds.index)
    return Scenario(kind, f"seed {seed} ({', '.join(parts)})", plan, happens)


def _errors() -> Iterator[Scenario]:
    for error, name in (
        (RuntimeError("planned by the check"), "an error"),
        (ConnectionError("planned by the check"), "a lost connection"),
    ):
        yield Scenario(FaultKind.ERROR, f"{name} before a call", _fail(error, "before"))
        yield Scenario(
            FaultKind.ERROR, f"{name} in a call, at await", _fail(error, "inside"), by_step=True
        )
        yield Scenario(FaultKind.ERROR, f"{name} after a call", _fail(error, "after"))
    yield Scenario(FaultKind.ERROR, "an outage of three calls", _outage("write"))
    yield Scenario(FaultKind.ERROR, "an outage at the start", _outage("begin"), _restart)


def _around_commits() -> Iterator[Scenario]:
    """Faults of a class with ``commit``. Other handlers are not hit."""
    lost = ConnectionError("planned by the check")
    for when in ("before", "after"):
        at: When = "before" if when == "before" else "after"
        yield Scenario(
            FaultKind.ERROR, f"a lost connection {when} a commit", _fail(lost, at, "commit")
        )
        yield Scenario(FaultKind.KILL, f"a kill {when} a commit", _kill(at, "commit"))
    inside = _kill("inside", "commit")
    yield Scenario(FaultKind.KILL, "a kill in a commit, at await", inside, by_step=True)


def _restores(backup: Backup) -> Iterator[Scenario]:
    """The destination is set back while the process runs, or while it does not."""

    def restored(then: Callable[[Harness], Awaitable[None]]) -> Happens:
        async def happen(harness: Harness, history: ChangeHistory) -> None:
            restore = await answer(backup())
            history.burst()
            await harness.saved()
            await answer(restore())
            await then(harness)
            history.burst()

        return happen

    async def nothing(harness: Harness) -> None: ...

    async def outage(harness: Harness) -> None:
        harness.outage(3)

    async def restart(harness: Harness) -> None:
        await harness.restart()

    kind = FaultKind.RESTORE
    yield Scenario(kind, "a backup restored before a call", happens=restored(nothing))
    yield Scenario(kind, "a backup restored in an outage", happens=restored(outage))
    yield Scenario(kind, "a backup restored before a start", happens=restored(restart))


def emptied(empty: Callable[[], Any]) -> Scenario:
    """The destination loses all that it has, with its positions, and a snapshot brings it back."""

    async def happen(harness: Harness, history: ChangeHistory) -> None:
        await answer(empty())
        history.burst()
        await harness.snapshot()

    return Scenario(FaultKind.RESTORE, "an emptied destination, and a snapshot", happens=happen)


async def answer(value: Any) -> Any:
    """What a function of the test returned, which may be a coroutine function."""
    return await value if inspect.isawaitable(value) else value


def _hand_overs() -> Iterator[Scenario]:
    yield Scenario(
        FaultKind.HAND_OVER,
        "another process takes over before a paused call",
        lambda harness, step: harness.hand_over("before"),
    )
    yield Scenario(
        FaultKind.HAND_OVER,
        "another process takes over while a call is paused at await",
        lambda harness, step: harness.hand_over("inside", step=step),
        by_step=True,
    )
    yield Scenario(
        FaultKind.HAND_OVER,
        "another process has begun when a call goes on that was paused before it",
        lambda harness, step: harness.hand_over("before", until="begun"),
    )
    yield Scenario(
        FaultKind.HAND_OVER,
        "another process has begun when a call goes on that was paused at await",
        lambda harness, step: harness.hand_over("inside", step=step, until="begun"),
        by_step=True,
    )


def _kill(when: When, method: Method = "write") -> Plan:
    return lambda harness, step: harness.kill(when, step=step, method=method)


def _fail(error: Exception, when: When, method: Method = "write") -> Plan:
    return lambda harness, step: harness.fail(error, when, step=step, method=method)


def _outage(method: Method) -> Plan:
    def plan(harness: Harness, step: int) -> None:
        harness.outage(3, method=method)

    return plan


async def _wait(harness: Harness, history: ChangeHistory) -> None:
    """The harness has begun already."""


async def _snapshot(harness: Harness, history: ChangeHistory) -> None:
    await harness.snapshot()


async def _restart(harness: Harness, history: ChangeHistory) -> None:
    await harness.restart()
    history.burst()


async def _set_back(harness: Harness, history: ChangeHistory) -> None:
    history.burst()
    await harness.handled()
    await harness.restart(repeat=10)
