"""The states of a watcher."""

from enum import StrEnum


class WatcherState(StrEnum):
    """A watcher ends only in ``stopped`` or ``halted``."""

    STARTING = "starting"
    CATCHING_UP = "catching_up"
    """The server searches its oplog from an old position for the scope's next change."""
    STREAMING = "streaming"
    CAUGHT_UP = "caught_up"
    DRAINING = "draining"
    STOPPED = "stopped"
    BACKING_OFF = "backing_off"
    WAITING = "waiting"
    """A handler's destination is down; or reading waits for handlers: the byte budget is spent, or
    they lag by a whole reply."""
    PAUSED = "paused"
    """By an operator: everything that was begun is handled and saved."""
    STANDBY = "standby"
    """Another process follows the scope, as the reason says; this one is ready to take over."""
    HALTED = "halted"
    """Manual intervention required; the reason says why."""


READING = frozenset({WatcherState.CATCHING_UP, WatcherState.STREAMING, WatcherState.CAUGHT_UP})
IN_OUTAGES = READING | {WatcherState.STARTING, WatcherState.WAITING}
"""The states in which handlers are called, or asked for their positions."""
ENDED = frozenset({WatcherState.STOPPED, WatcherState.HALTED})
