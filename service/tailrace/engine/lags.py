"""How far a scope is behind its server, by stage: computed when somebody asks."""

from __future__ import annotations

import time

from bson.timestamp import Timestamp

from tailrace.engine.position.watermark import Watermark
from tailrace.engine.state import WatcherState
from tailrace.model import Checkpoint
from tailrace.stream import StreamActivity

_SILENCE_SECONDS = 10.0
"""Beyond the time that a read may wait for a change: a stream without an answer for so long is
behind whatever the server tells others."""

_FOLLOWING = frozenset({WatcherState.STREAMING, WatcherState.CAUGHT_UP})
"""Replies come, and tell the server's time."""
_BROKEN = frozenset({WatcherState.BACKING_OFF, WatcherState.HALTED})


def lags(
    state: WatcherState,
    activity: StreamActivity,
    await_seconds: float,
    watermark: Watermark | None,
    checkpoint: Checkpoint | None,
    committed: Timestamp | None,
) -> dict[str, float]:
    """Seconds of cluster time behind the server by stage; a stage is missing while unknown.

    ``committed`` is how far everything was handled when the checkpoint was saved. A stage that
    waits for nothing but the next change is as far as the one before it.
    """
    if state is WatcherState.STOPPED:
        return {}
    read = handled = None
    if watermark is not None:
        position, read = watermark.position, watermark.read_time
        handled = later(watermark.handled_time, position.cluster_time)
        if read == handled and checkpoint and position.event_token == checkpoint.event_token:
            committed = handled  # since the checkpoint came bookmarks only
    if state in _BROKEN:
        # What counts now is where it goes on from.
        committed = checkpoint.cluster_time if checkpoint else None
    now = _now(state, activity, await_seconds)
    stages = {"read": read, "handled": handled, "committed": committed}
    found = {stage: behind(now, reached) for stage, reached in stages.items()}
    return {stage: lag for stage, lag in found.items() if lag is not None}


def _now(state: WatcherState, activity: StreamActivity, await_seconds: float) -> Timestamp | None:
    """The server's time: of the stream's own replies while it reads, else of the server's clock.

    By the server's clock an idle stream would lag each time it moves, until the next reply.
    """
    silent = (
        activity.heard is not None
        and time.monotonic() - activity.heard > await_seconds + _SILENCE_SECONDS
    )
    if state in _FOLLOWING and not silent:
        return activity.server_time
    return later(activity.server_time, activity.clock.now())


def later(one: Timestamp | None, other: Timestamp | None) -> Timestamp | None:
    """The later of two times, as far as they are known."""
    if one is None or other is None:
        return one or other
    return max(one, other)


def behind(now: Timestamp | None, reached: Timestamp | None) -> float | None:
    """Seconds between two times, never less than none."""
    if now is None or reached is None:
        return None
    return float(max(now.time - reached.time, 0))
