"""How far a scope, or a handler of it, lags behind the server, by stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bson.timestamp import Timestamp

from tailrace.engine.position.cluster_time import later
from tailrace.engine.status.lag import lag
from tailrace.engine.status.watcher_state import WatcherState

if TYPE_CHECKING:
    from tailrace.engine.status.status import Status


def greatest(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """By stage, the greatest of these lags."""
    most: dict[str, float] = {}
    for each in found:
        for stage, behind in each.items():
            most[stage] = max(behind, most.get(stage, 0.0))
    return most


def lags(status: Status, handler: str | None = None) -> dict[str, float]:
    """By stage, the lag of a handler of a course, or of its last one, in seconds of cluster time;
    absent if unknown.

    A stage that only waits for the next change counts as being as far as the stage before it.
    """
    state, saved = status.stream_state, status.saved(handler)
    committed, watermark = status.committed_time, status.shown
    if state is WatcherState.STOPPED:
        return {}
    read = handled = None
    of = watermark if handler is None or watermark is None else watermark.each.get(handler)
    if watermark is not None and of is not None:
        read, handled = watermark.read_time, later(of.handled_time, of.position.cluster_time)
        if handler is not None and saved is not None:
            committed = later(committed, saved.position.cluster_time)
        last = saved.position.event_token if saved is not None else None
        if read == handled and saved is not None and of.position.event_token == last:
            committed = handled  # only bookmarks came since the checkpoint
    if state in (WatcherState.BACKING_OFF, WatcherState.HALTED, WatcherState.PAUSED):
        # What counts now is where the next run starts.
        committed = saved.position.cluster_time if saved is not None else None
    now = _server_time(status, state)
    stages = {"read": read, "handled": handled, "committed": committed}
    by_stage = {stage: lag(now, reached) for stage, reached in stages.items()}
    return {stage: lag for stage, lag in by_stage.items() if lag is not None}


def _server_time(status: Status, state: WatcherState) -> Timestamp | None:
    """The set's time as of the stream's last reply while they come, otherwise its time now.

    Measured by the time now, an idle stream would show a lag before each reply.
    """
    now = status.stream.set_time or status.stream.server_time
    follows = (WatcherState.STREAMING, WatcherState.CAUGHT_UP)
    if state in follows and not status.stream.late:
        return now
    return later(now, status.clock.now())
