"""The states of a watcher."""

from enum import StrEnum


class WatcherState(StrEnum):
    """A watcher never ends but in ``stopped`` or ``halted``."""

    STARTING = "starting"
    CATCHING_UP = "catching_up"
    """The server searches its oplog, from an old position on, for the scope's next change."""
    STREAMING = "streaming"
    CAUGHT_UP = "caught_up"
    DRAINING = "draining"
    STOPPED = "stopped"
    BACKING_OFF = "backing_off"
    PAUSED = "paused"
    """Reading waits for handlers: the byte budget is spent, or they are a whole reply behind."""
    HALTED = "halted"
    """Manual intervention required; the reason says why."""


READING = frozenset({WatcherState.CATCHING_UP, WatcherState.STREAMING, WatcherState.CAUGHT_UP})
READY = READING | {WatcherState.PAUSED}
ENDED = frozenset({WatcherState.STOPPED, WatcherState.HALTED})
