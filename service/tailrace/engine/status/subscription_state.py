"""The states of a subscription: a handler of a scope, on the shared stream or on its own."""

from enum import StrEnum

from tailrace.engine.status.status import Status
from tailrace.engine.status.watcher_state import READING, WatcherState


class SubscriptionState(StrEnum):
    """Where a handler stands, beside the others of its scope."""

    ATTACHED = "attached"
    """The shared stream feeds it."""
    DETACHED = "detached"
    """It has left the shared stream, and reads none of its own yet."""
    CATCHING_UP = "catching_up"
    """It reads a stream of its own until that has come as far as the shared one."""
    WAITING = "waiting"
    """For its destination, for the end of its running calls, or for one of the scope's streams."""
    PAUSED = "paused"
    BACKING_OFF = "backing_off"
    HALTED = "halted"
    STANDBY = "standby"
    """Another process follows the scope."""
    STOPPED = "stopped"


_SAME = {
    WatcherState.PAUSED: SubscriptionState.PAUSED,
    WatcherState.BACKING_OFF: SubscriptionState.BACKING_OFF,
    WatcherState.HALTED: SubscriptionState.HALTED,
    WatcherState.STANDBY: SubscriptionState.STANDBY,
    WatcherState.STOPPED: SubscriptionState.STOPPED,
}


def subscription_state(status: Status, *, apart: bool) -> SubscriptionState:
    """The state of a handler whose course has this status. ``apart``: it is on its own."""
    if (same := _SAME.get(status.state)) is not None:
        return same
    if not apart:
        return SubscriptionState.ATTACHED
    if status.state is WatcherState.WAITING:
        return SubscriptionState.WAITING
    return SubscriptionState.CATCHING_UP if status.state in READING else SubscriptionState.DETACHED
