"""What one handler must get again by the replays that an operator orders.

A destination cannot tell a change of a replay from another one. So each replay lets each change of
its span come once more, and wants all of them between its order and its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import structlog

from tailrace.model.replay import Replay, ReplayRequest, ReplayState
from tests.simulation.expected import Expected


@dataclass(eq=False, slots=True)
class _Ordered:
    """One that has not ended. ``got``: what came since the order; ``left``: what may come again."""

    span: frozenset[int]
    got: set[int] = field(default_factory=set)
    left: set[int] = field(init=False)
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.left = set(self.span)


class Replays:
    """Those to one handler, by the generation that asks for them."""

    def __init__(self, expected: Expected) -> None:
        self.done = 0
        self._expected = expected
        self._ordered: dict[int, _Ordered] = {}
        self._early: set[int] = set()
        """Changes that came first when a replay was to bring them, too: one of two that come."""

    def order(self, generation: int, request: ReplayRequest | None) -> None:
        """An operator has ordered one, or cancelled those that there are."""
        for each in self._ordered.values():
            each.cancelled = True
        if request is not None:
            begin, end = request.since, request.until
            changes = self._expected.changes
            span = (each for each in changes if begin <= self._expected.time(each) <= end)
            self._ordered[generation] = _Ordered(frozenset(span))

    def has(self, change: int) -> bool:
        """Whether a change may come in a replay that has not ended, or has come in one."""
        return change in self._early or any(change in e.span for e in self._ordered.values())

    def first(self, change: int) -> None:
        """A change comes for the first time, and it is its turn."""
        if self.has(change):
            self._early.add(change)

    def note(self, change: int) -> None:
        """The handler got a change, or it is a dead letter now."""
        for each in self._ordered.values():
            each.got.add(change)

    def again(self, change: int) -> bool:
        """Takes one repetition of a change from a replay that allows one."""
        for left in [each.left for each in self._ordered.values()] + [self._early]:
            if change in left:
                left.remove(change)
                return True
        return False

    def lacking(self, change: int, before: Iterable[int]) -> list[int]:
        """What every replay of a change lacks of those that come before it. Nothing, if the
        handler's own course may be what brings it."""
        if change in self._early:
            return []
        replays = [each for each in self._ordered.values() if change in each.span]
        return [
            each
            for each in before
            if replays and all(each in of.span and each not in of.got for of in replays)
        ]

    def ended(self, replay: Replay, *, failed: bool) -> list[int]:
        """One has ended, or goes on: what it has not handed over, if it says that it has."""
        over = replay.state is not ReplayState.RUNNING or failed
        known = self._ordered.pop(replay.generation, None) if over else None
        if known is None or replay.state is not ReplayState.DONE:
            return []
        self.done += 1
        missing = sorted(known.span - known.got)
        log = structlog.get_logger()
        log.debug("simulation.replayed", generation=replay.generation, missing=missing)
        return missing

    def waiting(self) -> Iterator[int]:
        """The generations of those that have not ended, and were not cancelled."""
        return (generation for generation, each in self._ordered.items() if not each.cancelled)
