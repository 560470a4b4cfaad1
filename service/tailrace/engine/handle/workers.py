"""The tasks in which a lane calls its handler, and those that restart them.

A handler can cancel or ruin the task that it runs in. Beside each worker stands a task that never
runs a handler: it starts the worker again, with the same assignment.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import CallCancelled, apart, required
from tailrace.errors import TaskCancelled

W = TypeVar("W")


@dataclass(slots=True)
class Assignment(Generic[W]):
    """The work that a worker does, if any; ``last``: the run ends if the worker is lost again."""

    work: W | None = None
    last: bool = False


@dataclass
class Workers(Generic[W]):
    """The workers of a lane: each does ``work`` until nothing is left to do.

    One that is cancelled, and not by us, starts again; ``failed`` gets the error where that does
    not help. ``named`` gives the fields of a log line about a piece of work.
    """

    work: Callable[[Assignment[W]], Awaitable[None]]
    failed: Callable[[Exception], None]
    delivery: Delivery
    named: Callable[[W], dict[str, Any]]
    running: int = 0
    _started: int = 0
    _tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Starts a worker, and returns when all have ended.

        Raises :class:`TaskCancelled` where one was cancelled before it had begun.
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
            name = f"{self.delivery.name} worker {self._started}"
            self._tasks.start_soon(self._keep, name, name=f"beside {name}")

    async def _keep(self, name: str) -> None:
        work, assigned = apart(self.work, name), Assignment[W]()
        try:
            while True:
                try:
                    return await required(work, f"the task beside {name!r}", assigned)
                except CallCancelled as error:
                    self._restart(assigned, error)
        except TaskCancelled as error:
            self.failed(error)
        finally:
            self.running -= 1

    def _restart(self, assigned: Assignment[W], error: CallCancelled) -> None:
        """Raises :class:`TaskCancelled` where the work was lost before."""
        structlog.get_logger().warning(
            "handler.task_cancelled",
            scope=self.delivery.scope,
            handler=self.delivery.name,
            **(self.named(assigned.work) if assigned.work is not None else {}),
            consequence="the scope starts again" if assigned.last else "another task goes on",
        )
        if assigned.last:
            raise self._cancelled("the task that calls it was cancelled") from error
        assigned.last = assigned.work is not None

    def _cancelled(self, what: str) -> TaskCancelled:
        return TaskCancelled(
            f"handler {self.delivery.name!r}: {what}, and not by this service: look in the handler "
            "and in libraries that it uses for what cancels tasks"
        )
