"""A handler of a scope that this process follows, as a verification sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import bson

from tailrace.engine import Comparison, Routed, ScopePlan, Watcher, WatcherState
from tailrace.engine.position.cluster_time import before, later
from tailrace.engine.status.lag import MOST_LAG_SECONDS
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import Position
from tailrace.verify.window import Reached

_COPIED = ("insert", "update", "replace", "delete")
_ELSEWHERE = frozenset({WatcherState.STANDBY, WatcherState.STOPPED})


@dataclass(frozen=True, slots=True)
class FollowedHandler:
    """One handler. ``find``: the watcher of its scope now, which a reload may replace."""

    scope: str
    handler: str
    find: Callable[[str], Watcher | None]

    @property
    def watcher(self) -> Watcher | None:
        """That of the scope, if this process follows it."""
        watcher = self.find(self.scope)
        if watcher is None or watcher.status.state in _ELSEWHERE or not watcher.claim.epoch:
            return None
        return watcher

    @property
    def routed(self) -> Routed | None:
        """The handler with its routes; ``None`` if the scope has it no more."""
        return None if (watcher := self.watcher) is None else routed_of(watcher, self.handler)

    @property
    def plan(self) -> ScopePlan:
        """That of the scope. Raises :class:`Unavailable` if it is not followed here."""
        if (watcher := self.watcher) is None:
            raise Unavailable(f"scope {self.scope!r} is not followed here now")
        return watcher.plan

    def open(self) -> AbstractAsyncContextManager[Comparison]:
        """Its rows. Raises :class:`Unavailable` if it is not open, or cannot be compared."""
        watcher, routed = self.watcher, self.routed
        if watcher is None or routed is None or routed.handler.comparison is None:
            raise Unavailable(f"handler {self.handler!r} cannot be compared now")
        return routed.handler.comparison(watcher.scope.identity)

    @property
    def _position(self) -> Position | None:
        if (watcher := self.watcher) is None:
            return None
        status = watcher.status_of(self.handler)
        reached, saved = status.reached(self.handler), status.saved(self.handler)
        if reached is not None:
            return reached[0]
        return saved.position if saved is not None else None

    def reached(self) -> Reached:
        """Up to where it has handled everything. Raises :class:`Unavailable` if that is unknown."""
        if (position := self._position) is not None:
            token = position.token
            time = later(position.cluster_time, token.cluster_time if token is not None else None)
            # Such a one is before all changes of its time, which the server may not have reached.
            if time is not None and (token is None or token.is_high_water):
                time = before(time)
            if time is not None:
                return Reached(time, position.start_point)
        raise Unavailable(f"handler {self.handler!r} has no position yet")

    def is_busy(self) -> bool:
        """Whether changes come, and would wait for a large step.

        Never for a log: it is read as a whole, and small steps would read it again and again.
        """
        watcher, routed = self.watcher, self.routed
        if watcher is None or routed is None:
            return False
        reads_all = routed.handler.is_log or routed.handler.from_beginning
        return not reads_all and watcher.status_of(self.handler).stream.is_busy

    @property
    def ended(self) -> str:
        """Why it can be compared no more, since a reload; empty while it can."""
        if (watcher := self.watcher) is None:
            return ""
        if (routed := self.routed) is None:
            return f"scope {self.scope!r} has no handler {self.handler!r} any more"
        if routed.handler.comparison is None:
            return f"handler {self.handler!r} cannot be asked for its rows any more"
        return f"scope {self.scope!r} has a pipeline now" if watcher.plan.options.pipeline else ""

    @property
    def obstacle(self) -> str:
        """Why nothing is compared now; empty if it may be."""
        if (watcher := self.watcher) is None:
            return "the scope is not followed here now"
        if watcher.replays.is_wanted(self.handler):
            return "waiting for a running replay to the handler"
        lag = watcher.status_of(self.handler).read_lag
        if lag > MOST_LAG_SECONDS:
            return f"catching up with the stream first ({lag:.0f} s behind)"
        return "" if self._position is not None else "the handler has no position yet"

    @property
    def snapshot(self) -> str:
        """The id of a snapshot that the handler has not completely; empty if there is none."""
        if (watcher := self.watcher) is None:
            return ""
        seen = watcher.status_of(self.handler).snapshot_of(self.handler)
        return seen.progress.id if seen is not None and not seen.progress.over else ""

    def awaits(self, snapshot: str) -> bool:
        """Whether a snapshot was asked for, and has not begun."""
        if (watcher := self.watcher) is None:
            return False
        has = watcher.claim.snapshot_of(self.handler)
        awaited = watcher.scope.desired.awaited_snapshot(self.handler, has)
        return bool(snapshot) and awaited == snapshot


def routed_of(watcher: Watcher, handler: str) -> Routed | None:
    """A handler of a scope with its routes."""
    return next((each for each in watcher.plan.routed if each.name == handler), None)


def takes(routed: Routed, operation: str, database: str, collection: str) -> bool:
    """Whether events of an operation in a collection come to a handler."""
    return routed.wants is None or routed.wants(_change(operation, database, collection))


def is_copied(routed: Routed, database: str, collection: str) -> bool:
    """Whether all changes of a collection's documents come to a handler."""
    return all(takes(routed, operation, database, collection) for operation in _COPIED)


def is_wanted(routed: Routed, database: str, collection: str) -> bool:
    """Whether any changes of a collection's documents come to a handler."""
    return any(takes(routed, operation, database, collection) for operation in _COPIED)


def _change(operation: str, database: str, collection: str) -> ChangeEvent:
    event = {
        "_id": {"_data": "00"},
        "operationType": operation,
        "ns": {"db": database, "coll": collection},
        "documentKey": {"_id": 0},
    }
    return ChangeEvent.from_raw(bson.encode(event))
