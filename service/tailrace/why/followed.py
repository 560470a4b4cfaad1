"""A scope as this process follows it, for an inquiry."""

from collections.abc import Mapping
from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.engine import Watcher
from tailrace.engine.status.in_flight import Find
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.model import Position, ResumeToken
from tailrace.why.answer import Outcome, State


@dataclass(frozen=True, slots=True)
class WatchedScope:
    """:class:`tailrace.why.outcomes.Followed` by a watcher. ``position``: up to where everything is
    handled; ``None`` if no run reads."""

    position: Position | None
    read_to: Timestamp | None
    course: str
    find: Find | None

    def in_flight(self, token: ResumeToken) -> Mapping[str, Outcome] | None:
        found = self.find(token) if self.find is not None else None
        if found is None:
            return None
        return {name: Outcome(State(one.stage.value), one.detail) for name, one in found.items()}


def followed(watcher: Watcher) -> WatchedScope | None:
    """The scope as it is now; ``None`` if this process does not follow it."""
    status, state = watcher.status, watcher.status.state
    if state is WatcherState.STANDBY:
        return None
    why = f": {status.explanation}" if status.explanation else ""
    reads = status.find is not None and status.watermark is not None
    watermark = status.watermark if reads else None
    return WatchedScope(
        watermark.position if watermark is not None else None,
        watermark.read_time if watermark is not None else None,
        f"the scope is {state.value.replace('_', ' ')}{why}",
        status.find,
    )
