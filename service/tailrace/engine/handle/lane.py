"""The base class of the lanes: a run feeds them, closes or halts them, and waits for them.

A handler can cancel or break the task that it runs in. So each worker of a lane has a second task,
which never runs a handler and restarts the worker with the same assignment.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.delivery import Delivery
from tailrace.engine.handle.isolation import CallCancelled, in_own_task, must_finish
from tailrace.engine.plan.router import Wants
from tailrace.engine.ports import PerBatch
from tailrace.engine.position.handled_before import HandledBefore
from tailrace.engine.position.place import Place
from tailrace.engine.position.watermark import Watermark
from tailrace.errors import DeliveryInterrupted, TaskCancelled
from tailrace.event import ChangeEvent
from tailrace.model import ResumeToken

W = TypeVar("W")

Unhandled = Mapping[int, Collection[ResumeToken] | None]
"""By the number of each place that is opened and not finished: the tokens of its unhandled events;
``None`` for all."""


@dataclass(slots=True, eq=False)
class OpenPlace:
    """A place whose events are being handled, and the events ``left`` to handle."""

    place: Place
    left: set[ChangeEvent]


@dataclass(slots=True)
class Assignment(Generic[W]):
    """The current work of a worker, if any. ``last``: if the worker is lost again, the run ends."""

    work: W | None = None
    last: bool = False


@dataclass(eq=False)
class Lane(ABC):
    """Hands one handler of a run the events that it ``wants`` and does not have ``before``.

    It finishes places on the ``watermark``. ``rows``: digests of rows that the handler already has.
    """

    delivery: Delivery
    wants: Wants | None
    watermark: Watermark
    before: HandledBefore | None = None
    rows: set[str] = field(default_factory=set)
    opened: int = -1
    """The number of the last place whose events the handler may have received; -1 for none."""
    _queue: deque[Place] = field(default_factory=deque)
    _closed: bool = False
    _halted: bool = False
    """No call may begin any more; running calls finish."""
    _failure: Exception | None = None
    _tasks: TaskGroup | None = None
    _started: int = 0
    _running: int = 0
    """The number of started workers that have not ended."""

    @property
    def backlog(self) -> int:
        """The number of places that were fed and are not opened yet."""
        return len(self._queue)

    @abstractmethod
    def unhandled(self) -> Unhandled:
        """What the lane has begun and not finished."""

    @abstractmethod
    def feed(self, places: list[Place]) -> None:
        """Appends places, without waiting."""

    def flush(self) -> None:
        """Stop waiting for more: nothing can come before the fed places are handled."""
        self._wake_all()

    def drop(self) -> None:
        """Forget the places that are not opened."""
        self._queue.clear()

    def close(self) -> None:
        """Nothing more will be fed: finish all places, then end."""
        self._closed = True
        self._wake_all()

    def halt(self) -> None:
        """Begin no further call: end when the running calls have finished."""
        self._halted = True
        self._wake_all()

    async def run(self) -> None:
        """Handles until closed or halted. Raises the delivery's error after running calls have
        finished."""
        with suppress(DeliveryInterrupted):
            await self.delivery.position.confirm()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._start_worker()
        finally:
            self._tasks = None
        if tasks.cancel_scope.cancel_called:
            raise self._cancelled("the task that calls it was cancelled at its start")
        if self._failure is not None and not isinstance(self._failure, DeliveryInterrupted):
            raise self._failure

    @abstractmethod
    async def _work(self, assigned: Assignment[Any]) -> None:
        """Runs a worker until nothing is left to do."""

    @abstractmethod
    def _named(self, work: Any) -> dict[str, Any]:
        """The fields of a log line that identify the work."""

    @abstractmethod
    def _wake_all(self) -> None: ...

    def _fail(self, error: Exception) -> None:
        """Keeps the first failure: nothing more is begun, running calls may finish."""
        self._failure = self._failure or error
        self.halt()

    @property
    def _bounds(self) -> PerBatch:
        """Those of a call with several events."""
        calls = self.delivery.handler.calls
        assert isinstance(calls, PerBatch)  # noqa: S101 - for the type checker
        return calls

    @property
    def _waiting(self) -> bool:
        return bool(self._queue) and not self._halted

    def _without_handled(self, place: Place, events: list[ChangeEvent]) -> list[ChangeEvent]:
        if place.rows:
            stored = place.already_stored
            return [
                event
                for number, event in enumerate(events)
                if not self._has_row(event) and number >= stored
            ]
        if self.before is not None:
            events = self.before.of(events)
            if self.before.over:
                self.before = None
        return events

    def _events_of(self, place: Place) -> list[ChangeEvent]:
        """The events of a place. Handlers that are near each other share the events' keys."""
        assert place.slice is not None  # noqa: S101 - bookmarks are never fed
        others = place.hold is not None and place.hold.holders > 1
        return place.slice.events(several=others and self.watermark.near())

    def _wanted_of(self, place: Place) -> list[ChangeEvent]:
        events = self._without_handled(place, self._events_of(place))
        if self.wants is not None:
            events = [event for event in events if self.wants(event)]
        place.wanted = len(events)
        return self._protected(events)

    def _protected(self, events: list[ChangeEvent]) -> list[ChangeEvent]:
        """The events as the handler, its dead letters and its log lines may have them."""
        protection = self.delivery.handler.protection
        return events if protection is None else protection.of(events)

    def _has_row(self, event: ChangeEvent) -> bool:
        has = bool(self.rows) and event.token.digest in self.rows
        if has:
            self.rows.remove(event.token.digest)
        return has

    # --- workers: one that is cancelled, but not by us, starts again ---------------------------

    def _start_worker(self) -> None:
        # Once the others have ended, nobody cancels a task that starts in a cancelled group.
        if self._tasks is not None and not self._tasks.cancel_scope.cancel_called:
            self._started += 1
            self._running += 1
            name = f"{self.delivery.name} worker {self._started}"
            self._tasks.start_soon(self._run_worker, name, name=f"beside {name}")

    async def _run_worker(self, name: str) -> None:
        work, assigned = in_own_task(self._work, name), Assignment[Any]()
        try:
            while True:
                try:
                    return await must_finish(work, f"the task beside {name!r}", assigned)
                except CallCancelled as error:
                    self._restart(assigned, error)
        except TaskCancelled as error:
            self._fail(error)
        finally:
            self._running -= 1

    def _restart(self, assigned: Assignment[Any], error: CallCancelled) -> None:
        """Lets the worker restart; raises :class:`TaskCancelled` if its work was lost before."""
        structlog.get_logger().warning(
            "handler.task_cancelled",
            scope=self.delivery.scope,
            handler=self.delivery.name,
            **(self._named(assigned.work) if assigned.work is not None else {}),
            consequence="the scope starts again" if assigned.last else "another task continues",
        )
        if assigned.last:
            raise self._cancelled("the task that calls it was cancelled") from error
        assigned.last = assigned.work is not None

    def _cancelled(self, what: str) -> TaskCancelled:
        return TaskCancelled(
            f"handler {self.delivery.name!r}: {what}, and not by this service: look in the handler "
            "and in libraries that it uses for what cancels tasks"
        )


@dataclass(eq=False)
class SharedLane(Lane):
    """A lane with at most so many ``workers``: one more starts when there is work for it."""

    workers: int = 1
    _idle: deque[anyio.Event] = field(default_factory=deque)
    """What wakes each worker that waits for work."""

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.popleft().set()
        elif self._running < self.workers:
            self._start_worker()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.popleft().set()


def tokens(events: Iterable[ChangeEvent]) -> set[ResumeToken]:
    """The tokens of the events that have a readable token."""
    found = set()
    for event in events:
        with suppress(KeyError, ValueError):
            found.add(event.token)
    return found


async def woken(wake: anyio.Event, seconds: float | None) -> None:
    """Returns when the event is set. A timer sets it after ``seconds``, if given.

    Not by a cancel scope: a handler may close the coroutine that waits here, and a scope that is
    closed in another task cancels its former task without end.
    """
    if seconds is None:
        return await wake.wait()
    timer = asyncio.get_running_loop().call_later(max(seconds, 0.0), wake.set)
    try:
        await wake.wait()
    finally:
        timer.cancel()
