"""Runs one watcher per scope, each in a named task, and reports on all of them."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.isolation import required
from tailrace.engine.status.document import status_document
from tailrace.engine.status.watcher_state import ENDED, READING, WatcherState
from tailrace.engine.watcher import Watcher
from tailrace.errors import TaskCancelled
from tailrace.model.order import Order
from tailrace.stream import Interrupt

Follow = Callable[[Watcher, Interrupt], Awaitable[None]]

_READY = {WatcherState.WAITING, WatcherState.PAUSED, WatcherState.STOPPED}


class Supervisor:
    """Keeps the ``watchers``. One that reads but hears nothing for this long is not alive."""

    def __init__(self, silence_seconds: float) -> None:
        self.watchers: list[Watcher] = []
        self._follow: Follow = Watcher.run
        self._silence_seconds = silence_seconds
        self._stop = Interrupt()
        self._tasks: TaskGroup | None = None

    async def run(self, stop: Interrupt, follow: Follow = Watcher.run) -> None:
        """Returns when every watcher has stopped or halted. ``follow`` runs a watcher until the
        stop: always, or while this process has the lease of its scope."""
        self._stop, self._follow = stop, follow
        async with anyio.create_task_group() as self._tasks:
            for watcher in self.watchers:
                self._start(watcher)

    def _start(self, watcher: Watcher) -> None:
        assert self._tasks is not None  # noqa: S101 - for the type checker
        self._tasks.start_soon(self._keep, watcher, name=f"watcher {watcher.name}")

    async def _keep(self, watcher: Watcher) -> None:
        """Runs a watcher until its state ends it; if anybody else cancels its task, again."""
        name = f"the watcher of scope {watcher.name!r}"
        while True:
            try:
                return await required(self._follow, name, watcher, self._stop)
            except TaskCancelled as error:
                watcher.status.errors.note(str(error))
                log = structlog.get_logger()
                log.error("watcher.cancelled", scope=watcher.name, error=str(error))

    def find(self, name: str) -> Watcher | None:
        """The watcher of a scope; ``None`` if it is not followed here."""
        return next((each for each in self.watchers if each.name == name), None)

    def obey(self, order: Order) -> None:
        """Passes an operator's order on to the scope's watcher, if there is one."""
        if (watcher := self.find(order.scope)) is not None:
            watcher.obey(order)

    def restart(self, name: str, by: str = "operator") -> str:
        """Restarts a halted scope; returns why it cannot, or an empty string.

        Raises :class:`LookupError` for a scope that is not followed here.
        """
        if not self.watchers:
            return "the service is starting"
        index = next((i for i, one in enumerate(self.watchers) if one.name == name), None)
        if index is None:
            raise LookupError(name)
        halted = self.watchers[index]
        if halted.status.state is not WatcherState.HALTED:
            found = halted.status
            why = f" here: {found.reason}" if found.state is WatcherState.STANDBY else ""
            return f"scope {name!r} is {found.state.value}{why}: only a halted one is restarted"
        if self._stop.is_set or all(w.status.state in ENDED for w in self.watchers):
            return "the process is ending: start it again instead"
        self.watchers[index] = halted.anew(by)
        self._start(self.watchers[index])
        return ""

    @property
    def halted(self) -> list[str]:
        """The scopes that need manual intervention."""
        return [w.name for w in self.watchers if w.status.state is WatcherState.HALTED]

    @property
    def fenced(self) -> bool:
        """True if a scope ended because the store has a newer position; a restart would use it."""
        return any(w.fenced for w in self.watchers)

    @property
    def unsaved(self) -> dict[str, str]:
        """By scope, why its last position is not stored; empty if all are stored."""
        return {w.name: w.status.unsaved for w in self.watchers if w.status.unsaved}

    def not_alive(self) -> list[str]:
        """Why the process should be restarted: watchers that read but hear nothing."""
        now = time.monotonic()  # setting the local clock must not end a healthy process
        return [
            f"scope {watcher.name}: no answer from the server for {now - heard:.0f} s"
            for watcher in self.watchers
            if watcher.status.stream_state in READING
            and (heard := watcher.status.stream.heard) is not None
            # Time before this state, such as a pause for handlers, is not the server's silence.
            and now - max(heard, watcher.status.entered) > self._silence_seconds
        ]

    def not_ready(self) -> list[str]:
        """Why changes do not flow in every scope; a scope that ended as configured is ignored."""
        if not self.watchers:
            return ["starting"]
        states = [(watcher, watcher.status.state) for watcher in self.watchers]
        if all(state in ENDED for _, state in states):
            return ["no scope is followed any more"]
        return [
            f"scope {watcher.name}: {state.value}"
            + (f": {explanation}" if (explanation := watcher.status.explanation) else "")
            for watcher, state in states
            if state not in READING | _READY and not _followed_elsewhere(watcher)
        ]

    def degraded(self) -> list[str]:
        """What an operator should know of a ready service: paused scopes, outages of destinations,
        handler calls that outlived the lease of their scope, and dead letters that wait."""
        outages = [
            f"scope {watcher.name}: {watcher.status.reason}"
            for watcher in self.watchers
            if watcher.status.state is WatcherState.PAUSED
            or (watcher.status.state is WatcherState.WAITING and watcher.status.reason)
            or (watcher.status.outlived is not None and _followed_elsewhere(watcher))
        ]
        return outages + [
            _waits(watcher.name, handler, each.waiting)
            for watcher in self.watchers
            for handler, each in watcher.status.recorders.items()
            if each.waiting
        ]

    def readings(self) -> list[tuple[str, int, float | None]]:
        """By scope, the changes read since the start, and the lag in seconds, if it is known.

        If another member follows the scope, the lag is from the position in the store.
        """
        return [
            (
                each.name,
                each.status.events,
                each.status.lags.get(
                    "committed" if each.status.state is WatcherState.STANDBY else "handled"
                ),
            )
            for each in self.watchers
        ]

    def status(self) -> dict[str, Any]:
        """By scope, the status of its watcher as JSON types."""
        return {watcher.name: status_document(watcher.status) for watcher in self.watchers}


def _waits(scope: str, handler: str, letters: int) -> str:
    found = "1 dead letter waits" if letters == 1 else f"{letters} dead letters wait"
    return (
        f"scope {scope}: {found} for handler {handler!r}: see 'tailrace dead-letters list --scope "
        f"{scope}'; fix the handler and replay, or discard"
    )


def _followed_elsewhere(watcher: Watcher) -> bool:
    """Whether the watcher stands by for another process that follows the scope."""
    status, lease = watcher.status, watcher.status.lease()
    return status.state is WatcherState.STANDBY and lease is not None and bool(lease.owner)
