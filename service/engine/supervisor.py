"""Runs one watcher per scope, each a named task, and answers for all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import anyio

from service.engine.state import ENDED, READING, READY, WatcherState
from service.engine.watcher import Watcher
from service.stream import Interrupt


class Supervisor:
    """Keeps the watchers.

    ``silence_seconds``: a watcher that claims to read, but has had no answer from the server for
    so long, is not alive.
    """

    def __init__(self, watchers: Sequence[Watcher], silence_seconds: float) -> None:
        self._watchers = watchers
        self._silence_seconds = silence_seconds

    async def run(self, stop: Interrupt) -> None:
        """Returns when every watcher has stopped or halted."""
        async with anyio.create_task_group() as watchers:
            for watcher in self._watchers:
                watchers.start_soon(watcher.run, stop, name=f"watcher {watcher.name}")

    @property
    def halted(self) -> list[str]:
        """The scopes that need a person."""
        return [w.name for w in self._watchers if w.status.state is WatcherState.HALTED]

    def not_alive(self) -> list[str]:
        """Why the process should be restarted: watchers that read and hear nothing."""
        now = time.time()
        return [
            f"scope {watcher.name}: no answer from the server for {now - heard:.0f} s"
            for watcher in self._watchers
            if watcher.status.state in READING
            and (heard := watcher.status.last_round_trip) is not None
            # What came before this state, a pause for handlers, is not the server's silence.
            and now - max(heard, watcher.status.since.timestamp()) > self._silence_seconds
        ]

    def not_ready(self) -> list[str]:
        """Why changes do not flow in every scope; a scope that ended as configured is no reason."""
        states = [(watcher, watcher.status.state) for watcher in self._watchers]
        if all(state in ENDED for _, state in states):
            return ["no scope is followed any more"]
        return [
            f"scope {watcher.name}: {state.value}"
            + (f": {watcher.status.reason}" if watcher.status.reason else "")
            for watcher, state in states
            if state not in READY and state is not WatcherState.STOPPED
        ]

    def status(self) -> dict[str, Any]:
        """JSON types: by scope, what its watcher says of itself."""
        return {watcher.name: watcher.status.document() for watcher in self._watchers}
