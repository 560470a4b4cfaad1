"""A scope as this process follows it, for an inquiry."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.engine import Watcher
from tailrace.engine.status.in_flight import Find
from tailrace.engine.status.subscription_state import subscription_state
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.model import ResumeToken
from tailrace.why.answer import Outcome, State
from tailrace.why.outcomes import HandlerPosition


@dataclass(frozen=True, slots=True)
class WatchedScope:
    """:class:`tailrace.why.outcomes.Followed` by a watcher. ``finds``: of each of its streams."""

    read_to: Timestamp | None
    handlers: Mapping[str, HandlerPosition]
    finds: Sequence[Find]

    def of(self, handler: str) -> HandlerPosition:
        unknown = HandlerPosition(None, None, "the handler is not one of the scope as it runs")
        return self.handlers.get(handler, unknown)

    def in_flight(self, token: ResumeToken) -> Mapping[str, Outcome]:
        return {
            name: Outcome(State(one.stage.value), one.detail)
            for find in self.finds
            for name, one in (find(token) or {}).items()
        }


def followed(watcher: Watcher) -> WatchedScope | None:
    """The scope as it is now; ``None`` if this process does not follow it."""
    status = watcher.status
    if status.state is WatcherState.STANDBY:
        return None
    reads = status.find is not None and status.watermark is not None
    return WatchedScope(
        status.watermark.read_time if reads and status.watermark is not None else None,
        {each.name: _handler(watcher, each.name) for each in watcher.plan.routed},
        [each.find for each in status.courses if each.find is not None],
    )


def _handler(watcher: Watcher, name: str) -> HandlerPosition:
    status, apart = watcher.status_of(name), name in watcher.apart
    state = subscription_state(status, apart=True) if apart else status.state
    why = f": {status.explanation}" if status.explanation else ""
    course = f"the {'handler' if apart else 'scope'} is {state.value.replace('_', ' ')}{why}"
    if status.find is None or status.watermark is None:
        return HandlerPosition(None, None, course)
    return HandlerPosition(status.position(name), status.watermark.read_time, course)
