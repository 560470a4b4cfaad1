"""Whether scopes and their handlers are followed as they should be: for the probes, and operators.

Each line begins with the scope, and names the handler that it is about.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tailrace.engine.status.freshness import freshness_document
from tailrace.engine.status.removed_letters import removed_letters
from tailrace.engine.status.status import Status
from tailrace.engine.status.subscription_state import SubscriptionState, subscription_state
from tailrace.engine.status.watcher_state import ENDED, READING, WatcherState
from tailrace.engine.watcher import Watcher
from tailrace.stream.server_clock import LATE_SECONDS

_READY = {WatcherState.WAITING, WatcherState.PAUSED, WatcherState.STOPPED}


def not_alive(watchers: Iterable[Watcher], silence_seconds: float) -> list[str]:
    """Why the process should be restarted: streams that are read, but hear nothing."""
    now = time.monotonic()  # setting the local clock must not end a healthy process
    return [
        f"{what}: no answer from the server for {now - heard:.0f} s"
        for watcher in watchers
        for what, status in _courses(watcher)
        if status.stream_state in READING
        and (heard := status.stream.heard) is not None
        # Time before this state, such as a pause for handlers, is not the server's silence.
        and now - max(heard, status.entered)
        > max(silence_seconds, status.stream.await_seconds + LATE_SECONDS)
    ]


def not_ready(watchers: Sequence[Watcher]) -> list[str]:
    """Why changes do not flow in every scope and to every handler; a scope that ended as configured
    is ignored."""
    if not watchers:
        return ["starting"]
    states = [watcher.status.state for watcher in watchers]
    if all(state in ENDED for state in states) and WatcherState.HALTED not in states:
        return ["no scope is followed any more"]
    scopes = [
        f"scope {watcher.name}: {state.value}"
        + (f": {explanation}" if (explanation := watcher.status.explanation) else "")
        for watcher, state in zip(watchers, states, strict=True)
        if not followed_elsewhere(watcher)
        # In an outage at the start the stream may not be open yet: changes would not come.
        and (state not in READING | _READY or watcher.status.starting)
    ]
    return scopes + [
        f"scope {watcher.name}: handler {name!r} is halted: {status.explanation}; 'tailrace scopes "
        f"restart {watcher.name} --handler {name}' restarts it"
        for watcher in watchers
        for name, status in watcher.status.apart().items()
        if status.state is WatcherState.HALTED
    ]


def degraded(watchers: Sequence[Watcher], letters: Mapping[tuple[str, str], int]) -> list[str]:
    """What an operator should know of a ready service: paused scopes, handlers on their own or
    further behind than their ``max_lag``, outages of destinations, members of the source that are
    behind, handler calls that run for long or outlived the lease of their scope, positions that
    cannot be saved, and dead letters that wait: ``letters``, by scope and handler."""
    outages = [
        f"scope {watcher.name}: {watcher.status.reason}"
        for watcher in watchers
        if watcher.status.state is WatcherState.PAUSED
        or (watcher.status.state is WatcherState.WAITING and watcher.status.reason)
        or (watcher.status.outlived is not None and followed_elsewhere(watcher))
        or (watcher.status.state in READING and watcher.status.stream.member_lag)
    ]
    own = [
        _on_its_own(watcher, name, status)
        for watcher in watchers
        for name, status in watcher.status.apart().items()
        if status.state not in ENDED
    ]
    late = [
        _is_late(watcher.name, name, document)
        for watcher in watchers
        for name in watcher.status.recorders
        if not followed_elsewhere(watcher)
        and (document := freshness_document(watcher.status_of(name), name)) is not None
        and document["breached"]
    ]
    unsaved = [
        f"{what}: {trouble}"
        for watcher in watchers
        for what, status in _courses(watcher)
        if (trouble := status.saving.trouble)
    ]
    waiting = [
        _waits(watcher.name, handler, each.waiting)
        for watcher in watchers
        for handler, each in watcher.status.recorders.items()
        if each.waiting
    ]
    recorders = {watcher.name: watcher.status.recorders for watcher in watchers}
    return outages + own + late + unsaved + waiting + removed_letters(letters, recorders)


def followed_elsewhere(watcher: Watcher) -> bool:
    """Whether the watcher stands by for another process that follows the scope."""
    status, lease = watcher.status, watcher.status.lease()
    if lease is None or lease.held:  # this process has it, and begins in a moment
        return False
    return status.state is WatcherState.STANDBY and bool(lease.owner)


def _courses(watcher: Watcher) -> Iterator[tuple[str, Status]]:
    """Every course of the scope, with its name for people."""
    yield f"scope {watcher.name}", watcher.status
    for name, status in watcher.status.apart().items():
        yield f"scope {watcher.name}: handler {name!r}", status


def _on_its_own(watcher: Watcher, handler: str, status: Status) -> str:
    state = subscription_state(status, apart=True)
    line = f"scope {watcher.name}: handler {handler!r} is {state.value.replace('_', ' ')}"
    if state is SubscriptionState.CATCHING_UP and (behind := status.lags.get("handled")):
        line = f"{line}, {behind:.0f} s behind"
    return f"{line}: {why}" if (why := status.explanation) else line


def _is_late(scope: str, handler: str, freshness: Mapping[str, Any]) -> str:
    seconds, most = freshness["behind_seconds"], freshness["max_lag_seconds"]
    line = f"scope {scope}: handler {handler!r} is {seconds:.0f} s behind"
    return f"{line}, and its max_lag is {most:g} s"


def _waits(scope: str, handler: str, letters: int) -> str:
    count = "1 dead letter waits" if letters == 1 else f"{letters} dead letters wait"
    return (
        f"scope {scope}: {count} for handler {handler!r}: see 'tailrace dead-letters list --scope "
        f"{scope}'; fix the handler and replay, or discard"
    )
