"""The tasks in which a lane calls its handler, and those that look after them.

A worker may be lost at any time, for a handler can ruin the task that it runs in. Beside each
stands a task that never runs a handler: it starts the worker anew, with the same assignment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import CallCancelled, apart, required
from tailrace.errors import TaskCancelled

W = TypeVar("W")


class Assignment(Generic[W]):
    """The work that a worker does, if any; ``again``: a worker was lost with it once."""

    __slots__ = ("again", "work")

    def __init__(self) -> None:
        self.work: W | None = None
        self.again = False


class Workers(Generic[W]):
    """The workers of a lane.

    ``work`` is what each does with its assignment; it returns when nothing is left to do. One that
    is cancelled, and not by us, starts again. ``failed`` gets the error where that does not help:
    the same work is lost a second time, or may not be done ``twice``. ``named`` gives the fields of
    a log line that say which work it is.
    """

    def __init__(
        self,
        work: Callable[[Assignment[W]], Awaitable[None]],
        failed: Callable[[TaskCancelled], None],
        delivery: Delivery,
        named: Callable[[W], dict[str, Any]],
        *,
        twice: bool = True,
    ) -> None:
        self._work = work
        self._failed = failed
        self._named = named
        self._twice = twice
        self._handler = delivery.name
        self._log = structlog.get_logger().bind(scope=delivery.scope, handler=delivery.name)
        self._tasks: TaskGroup | None = None
        self._started = 0
        self.running = 0

    async def run(self) -> None:
        """Starts a worker, and returns when all have ended.

        Raises :class:`TaskCancelled` where one was cancelled before it had begun: the task group
        takes that for its own end.
        """
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self.start()
        finally:
            self._tasks = None
        if tasks.cancel_scope.cancel_called:
            raise TaskCancelled(
                self._cancelled("the task that calls it was cancelled at its start")
            )

    def start(self) -> None:
        """One more worker, while :meth:`run` runs."""
        if self._tasks is not None:
            self._started += 1
            self.running += 1
            name = f"{self._handler} worker {self._started}"
            self._tasks.start_soon(self._keep, name, name=f"beside {name}")

    async def _keep(self, name: str) -> None:
        work, assigned = apart(self._work, name), Assignment[W]()
        try:
            while not await self._ends(work, assigned):
                pass
        except TaskCancelled as error:
            self._failed(error)
        finally:
            self.running -= 1

    async def _ends(
        self, call: Callable[[Assignment[W]], Awaitable[None]], assigned: Assignment[W]
    ) -> bool:
        """Whether the worker came to its end. Raises :class:`TaskCancelled`."""
        try:
            await required(call, f"the task beside a worker of {self._handler!r}", assigned)
        except CallCancelled as error:
            work = assigned.work
            gives_up = work is not None and (assigned.again or not self._twice)
            self._log.warning(
                "handler.task_cancelled",
                **(self._named(work) if work is not None else {}),
                consequence="the scope starts again" if gives_up else "another task goes on",
            )
            if gives_up:
                raise TaskCancelled(
                    self._cancelled("the task that calls it was cancelled")
                ) from error
            assigned.again = work is not None
            return False
        return True

    def _cancelled(self, what: str) -> str:
        return (
            f"handler {self._handler!r}: {what}, and not by this service: look in the handler, and "
            "in libraries that it uses, for what cancels tasks"
        )
