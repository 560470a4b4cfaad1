"""The tasks in which a lane calls its handler, and those that restart them.

A handler can cancel or ruin the task that it runs in. Beside each worker stands a task that never
runs a handler: it starts the worker again, with the same assignment.
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
    """The work that a worker does, if any; ``last``: the run ends if the worker is lost again."""

    __slots__ = ("last", "work")

    def __init__(self) -> None:
        self.work: W | None = None
        self.last = False


class Workers(Generic[W]):
    """The workers of a lane: each does ``work`` until nothing is left to do.

    One that is cancelled, and not by us, starts again; ``failed`` gets the error where that does
    not help. ``named`` gives the fields of a log line that say which work it is.
    """

    def __init__(
        self,
        work: Callable[[Assignment[W]], Awaitable[None]],
        failed: Callable[[Exception], None],
        delivery: Delivery,
        named: Callable[[W], dict[str, Any]],
    ) -> None:
        self._work = work
        self._failed = failed
        self._named = named
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
            raise self._cancelled("the task that calls it was cancelled at its start")

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
            while True:
                try:
                    return await required(work, f"the task beside {name!r}", assigned)
                except CallCancelled as error:
                    self._restart(assigned, error)
        except TaskCancelled as error:
            self._failed(error)
        finally:
            self.running -= 1

    def _restart(self, assigned: Assignment[W], error: CallCancelled) -> None:
        """Raises :class:`TaskCancelled` where the work was lost before."""
        self._log.warning(
            "handler.task_cancelled",
            **(self._named(assigned.work) if assigned.work is not None else {}),
            consequence="the scope starts again" if assigned.last else "another task goes on",
        )
        if assigned.last:
            raise self._cancelled("the task that calls it was cancelled") from error
        assigned.last = assigned.work is not None

    def _cancelled(self, what: str) -> TaskCancelled:
        return TaskCancelled(
            f"handler {self._handler!r}: {what}, and not by this service: look in the handler, and "
            "in libraries that it uses, for what cancels tasks"
        )
