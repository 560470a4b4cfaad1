"""Runs one watcher per scope, each in a named task, and reports on all of them.

While it runs, scopes may be added, changed and removed. Each such change touches one task.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.isolation import must_finish
from tailrace.engine.handle.long_calls import LongCalls
from tailrace.engine.readiness import degraded, not_alive, not_ready
from tailrace.engine.scope_task import GRACE_IS_OVER, Begin, ScopeTask, log_not_drained
from tailrace.engine.status.document import status_document
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.engine.watcher import Watcher
from tailrace.errors import TaskCancelled
from tailrace.model.desired_state import DesiredState
from tailrace.observe.handler_recorder import HandlerRecorder
from tailrace.stream import Interrupt

Follow = Callable[[Watcher, Interrupt], Awaitable[None]]

_SIDE_CALL_SECONDS = 1.0
"""How long the calls of replays may still take once every scope has ended."""


Waiting = Callable[[], Mapping[tuple[str, str], int]]
"""How many dead letters wait, by scope and handler."""


class Supervisor:
    """Keeps the ``watchers``. One that reads but hears nothing for ``silence_seconds`` is not
    alive. ``stays``: whether it goes on while all scopes are halted, for an operator."""

    def __init__(self, silence_seconds: float, letters: Waiting = dict) -> None:
        self.watchers: list[Watcher] = []
        self.letters, self.stays = letters, True
        self._follow: Follow = Watcher.run
        self.silence_seconds = silence_seconds
        self._stop = Interrupt()
        self._tasks: TaskGroup | None = None
        self._ended = anyio.Event()
        """Set when the task of a scope has ended."""
        self._scopes: dict[str, ScopeTask] = {}
        """By scope, its task while it runs."""

    async def run(self, stop: Interrupt, follow: Follow = Watcher.run) -> None:
        """Returns when every watcher has stopped, or halted unless it ``stays``. ``follow`` runs a
        watcher until the stop: always, or while this process has the lease of its scope."""
        self._stop, self._follow = stop, follow
        with LongCalls(self._recorders).watching():
            async with anyio.create_task_group() as self._tasks:
                for watcher in self.watchers:
                    self._start(watcher)
                self._tasks.start_soon(self._stay, name="halted scopes")
        await self.end_side_calls(None, _SIDE_CALL_SECONDS)

    async def _stay(self) -> None:
        """Waits while scopes run, or are halted and may be restarted."""
        with self._stop.interrupts():
            while not self._over:
                self._ended = anyio.Event()
                await self._ended.wait()

    @property
    def _over(self) -> bool:
        """Whether the process ends: it was told to, or no scope runs, and none is waited for."""
        return self._stop.is_set or not (self._scopes or (self.stays and self.halted))

    def _start(self, watcher: Watcher) -> None:
        self._run_task(watcher.name, ScopeTask(), watcher)

    def _run_task(self, name: str, task: ScopeTask, watcher: Watcher | None = None) -> None:
        assert self._tasks is not None  # noqa: S101 - for the type checker
        self._scopes[name] = task
        self._tasks.start_soon(self._run_all, name, task, watcher, name=f"watcher {name}")

    async def _run_all(self, name: str, task: ScopeTask, watcher: Watcher | None) -> None:
        """Runs a watcher until its state ends it, and then the next one, if there is to be one."""
        try:
            while True:
                if watcher is not None:
                    await self._run_watcher(watcher, task)
                begin, task.begin, task.deadline = task.begin, None, math.inf
                if begin is None or self._stop.is_set:
                    return
                watcher = await begin()
                self._put(name, watcher)
                task.changes = task.begin is not None
        finally:
            if self._scopes.get(name) is task:
                del self._scopes[name]
            self._ended.set()

    async def _run_watcher(self, watcher: Watcher, task: ScopeTask) -> None:
        """Runs a watcher until its state ends it; if anybody else cancels its task, again."""
        name = f"the watcher of scope {watcher.name!r}"
        with self._stop.child() as stop, anyio.CancelScope() as running:

            def end(deadline: float) -> None:
                running.deadline = deadline
                stop.set()

            task.end = end
            if task.begin is not None:
                end(task.deadline)
            while True:
                try:
                    await must_finish(self._follow, name, watcher, stop)
                    return
                except TaskCancelled as error:
                    watcher.status.errors.note(str(error))
                    log = structlog.get_logger()
                    log.error("watcher.cancelled", scope=watcher.name, error=str(error))
        if running.cancelled_caught:
            log_not_drained(watcher.name, GRACE_IS_OVER)

    def _put(self, name: str, watcher: Watcher | None) -> None:
        """Puts a watcher in the place of the scope's former one."""
        index = next((i for i, one in enumerate(self.watchers) if one.name == name), None)
        if index is None:
            self.watchers += [] if watcher is None else [watcher]
        else:
            self.watchers[index : index + 1] = [] if watcher is None else [watcher]

    def change(self, name: str, begin: Begin, grace_seconds: float) -> None:
        """Drains the scope's watcher, if there is one; after its end, ``begin`` makes the next one.

        Calls that have not ended after the grace period are cancelled. A change before that end
        replaces the earlier one.
        """
        if (task := self._scopes.get(name)) is None:
            self._run_task(name, ScopeTask(begin=begin, changes=True))
            return
        task.begin, task.changes = begin, True
        task.deadline = min(task.deadline, anyio.current_time() + grace_seconds)
        task.end(task.deadline)

    def is_changing(self, name: str) -> bool:
        """Whether the scope gets another watcher by a change that is not done."""
        task = self._scopes.get(name)
        return task is not None and task.changes

    @property
    def unchangeable(self) -> str:
        """Why scopes cannot be added, changed or removed now; empty if they can."""
        if self._tasks is None or not self.watchers:
            return "the service is starting: try again when /readyz answers 200"
        if self._over:
            return "the process is ending: start it again instead"
        return ""

    def find(self, name: str) -> Watcher | None:
        """The watcher of a scope; ``None`` if it is not followed here."""
        return next((each for each in self.watchers if each.name == name), None)

    async def end_side_calls(self, name: str | None, seconds: float) -> None:
        """Ends calls beside the runs of a scope, or of all, as handlers are to be closed."""
        async with anyio.create_task_group() as tasks:
            for watcher in self.watchers:
                if name in (None, watcher.name):
                    tasks.start_soon(watcher.scope.side_calls.end, seconds)

    def apply(self, desired: DesiredState) -> None:
        """Passes a desired state on to the scope's watcher, if there is one."""
        if (watcher := self.find(desired.scope)) is not None:
            watcher.apply(desired)

    def restart(self, name: str, by: str = "operator", handler: str | None = None) -> str:
        """Restarts everything that is halted in a scope, or a handler that is halted on its own;
        returns why it cannot, or an empty string.

        Raises :class:`LookupError` for a scope that is not followed here.
        """
        if not self.watchers or self._tasks is None:
            return "the service is starting"
        index = next((i for i, one in enumerate(self.watchers) if one.name == name), None)
        if index is None:
            raise LookupError(name)
        watcher, task = self.watchers[index], self._scopes.get(name)
        if self.is_changing(name) or (task is not None and task.begin is not None):
            return f"scope {name!r} is being changed by a reload, and starts again with that"
        if watcher.status.state is not WatcherState.HALTED or watcher.goes_on:
            return watcher.restart(by, handler)
        if self._over:
            return "the process is ending: start it again instead"
        if handler is not None and len(watcher.plan.routed) > 1:
            others = f"handler {handler!r} of scope {name!r} is halted with the others"
            return f"{others}: 'tailrace scopes restart {name}' restarts them"
        again = watcher.anew(by)
        if task is None:
            self.watchers[index] = again
            self._start(again)
        else:  # its run is ending

            async def begin() -> Watcher:
                return again

            task.begin = begin
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
        why = {w.name: [each.unsaved for each in w.status.courses] for w in self.watchers}
        return {name: next(filter(None, each)) for name, each in why.items() if any(each)}

    def not_alive(self) -> list[str]:
        """See :func:`tailrace.engine.readiness.not_alive`."""
        return not_alive(self.watchers, self.silence_seconds)

    def not_ready(self) -> list[str]:
        """See :func:`tailrace.engine.readiness.not_ready`."""
        return not_ready(self.watchers)

    def degraded(self) -> list[str]:
        """See :func:`tailrace.engine.readiness.degraded`."""
        return degraded(self.watchers, self.letters())

    def _recorders(self) -> dict[str, Mapping[str, HandlerRecorder]]:
        """What is recorded of the handlers' calls, by scope and handler."""
        return {watcher.name: watcher.status.recorders for watcher in self.watchers}

    def readings(self) -> list[tuple[str, int, float | None]]:
        """By scope, the changes read since the start, and the lag in seconds, if it is known.

        If another member follows the scope, the lag is what that one says.
        """
        return [
            (watcher.name, watcher.status.counts.events, watcher.status.lag)
            for watcher in self.watchers
        ]

    def status(self) -> dict[str, Any]:
        """By scope, the status of its watcher as JSON types."""
        return {
            watcher.name: {**status_document(watcher.status), **watcher.generations}
            for watcher in self.watchers
        }
