"""Keeps objects open, such as a pool of connections, each entered and left in a task of its own.

So any task may end one, in any order. An object whose destination is down is entered later: its
task tries again until it is open.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from tailrace.engine.handle.isolation import must_finish
from tailrace.errors import StartRefused, TaskCancelled, Unavailable, describe
from tailrace.model.failure_policy import Backoff
from tailrace.observe.delay import reported_after
from tailrace.stream import Interrupt

OPENING_SECONDS = 10.0
"""How long the start waits for ``__aenter__``. After that, the calls of the handler wait for it."""

CLOSING_SECONDS = 5.0
"""How long ``__aexit__`` may take. Everything that was handled is saved by then."""

OPENING_BACKOFF = Backoff(0.5, 10.0)
_LOOK_SECONDS = 1.0
"""How often a waiting call looks whether the object is open. With the longest back-off this is less
than the 15 s after which a destination that is back must be used."""

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class ManagedObject(Generic[T]):
    """An object that a :class:`Keeper` enters once, if it is a context, and leaves at the end.

    ``name`` names it in tasks and errors, ``fields`` in the log. ``create`` makes it. ``waits``
    says which failures of its first entry are waited out; for another one, it is ``refused``.
    """

    name: str
    create: Callable[[], Any]
    waits: Callable[[BaseException], bool] = lambda error: False
    refused: Callable[[Any, BaseException], BaseException] = lambda target, error: error
    fields: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    begun: bool = False
    _target: Any = None
    _usable: Any = None
    _failure: BaseException | None = None
    _cause: str = "it is still being opened"
    _down: bool = False
    """Whether the log says that its destination is down."""
    _decided: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is open, or refused, or its destination is down."""
    _leaving: Interrupt = field(default_factory=Interrupt)
    _closed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def target(self) -> Any:
        """The object, made if it was not. Raises what ``create`` raises."""
        if self._target is None:
            self._target = self.create()
        return self._target

    @property
    def is_left(self) -> bool:
        """Whether it is, or is to be, left."""
        return self._leaving.is_set

    @property
    def is_closed(self) -> bool:
        """Whether it was left, or could not be opened."""
        return self._closed.is_set() or (self.is_left and not self.begun)

    def usable(self) -> T:
        """What ``__aenter__`` returned. Raises :class:`Unavailable` while it is not open."""
        if not self.is_open:
            message = f"{type(self._target).__name__} is not open: {self._cause}"
            raise Unavailable(message, retry_after=_LOOK_SECONDS)
        return self._usable  # type: ignore[no-any-return]

    async def opened(self, most_seconds: float = math.inf) -> None:
        """Returns when it is open, or will be opened later. Raises why it cannot be."""
        with anyio.move_on_after(most_seconds):
            await self._decided.wait()
        if self._failure is not None:
            raise self._failure
        if self.is_left:
            raise StartRefused(f"{self.name} was closed before it was open")
        if not self._decided.is_set():
            self._is_down()
            self._decided.set()

    async def run(self) -> None:
        """Enters it, again and again if its destination is down, until :meth:`leave`."""
        tries = 0
        try:
            # Around everything that the object holds meanwhile, such as a task group of its own.
            with anyio.CancelScope() as life:
                try:
                    while not (await self._entered(life) or self._failure or self.is_left):
                        tries += 1
                        await self._leaving.sleep(OPENING_BACKOFF.delay(tries))
                    if self.is_open:
                        await self._leaving.wait()
                finally:
                    if self.is_open:
                        self.is_open = False
                        await self._leave(life)
        finally:
            self._decided.set()
            self._closed.set()

    def leave(self) -> None:
        """Lets it close, or ends the attempts to open it."""
        self._leaving.set()

    async def close(self) -> None:
        """Leaves it, and returns when it is closed."""
        self.leave()
        if self.begun:
            await self._closed.wait()

    async def _entered(self, life: anyio.CancelScope) -> bool:
        try:
            with self._leaving.calling(life.cancel):
                target = usable = self.target
                if hasattr(target, "__aenter__"):
                    usable = await target.__aenter__()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is told
            self._failed(error)
            return False
        if self._down:
            structlog.get_logger().info("destination.recovered", **self.fields)
        self._usable = target if usable is None else usable
        self.is_open = True
        self._decided.set()
        return True

    def _failed(self, error: BaseException) -> None:
        """Refuses it, unless it was said to be opened later, or may be."""
        self._cause = describe(error)
        if not self._decided.is_set() and not self.waits(error):
            self._failure = self.refused(self._target, error)
        elif not self._down:
            self._is_down()
        self._decided.set()

    def _is_down(self) -> None:
        self._down = True
        log = structlog.get_logger()
        log.warning("destination.unavailable", error=self._cause, **self.fields)

    async def _leave(self, life: anyio.CancelScope) -> None:
        if not hasattr(self._target, "__aexit__"):
            return
        log = structlog.get_logger().bind(**self.fields)
        life.shield, life.deadline = True, anyio.current_time() + CLOSING_SECONDS
        slow = reported_after(
            CLOSING_SECONDS + 1,
            "handler.closing_delayed",
            **self.fields,
            reason="its __aexit__ ignores its cancellation",
        )
        try:
            with slow:
                await self._target.__aexit__(None, None, None)
        except anyio.get_cancelled_exc_class():
            if not life.cancel_called:
                raise
            log.error("handler.close_failed", error=f"it took longer than {CLOSING_SECONDS:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, the others must close too
            log.error("handler.close_failed", error=describe(error))


class Keeper:
    """Keeps objects open, each in a task of a group."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._host = asyncio.current_task()
        self.objects: list[ManagedObject[Any]] = []
        """Those that are not closed yet."""

    def open(self, managed: ManagedObject[Any]) -> None:
        """Begins to open it, unless that has begun."""
        if not managed.begun:
            managed.begun = True
            self.objects.append(managed)
            self._tasks.start_soon(self._run, managed, name=f"{managed.name} kept open")

    async def _run(self, managed: ManagedObject[Any]) -> None:
        try:
            await must_finish(managed.run, f"the task that keeps {managed.name} open")
        except TaskCancelled as error:
            if self._host is not None and self._host.cancelling() and error.__cause__ is not None:
                raise error.__cause__ from None  # everything was cancelled: the process ends
            raise
        finally:
            self.objects.remove(managed)


async def close_all(objects: Iterable[ManagedObject[Any]]) -> None:
    """Closes these side by side: one that does not end keeps no other open."""
    managed_objects = [*objects]
    for managed in reversed(managed_objects):
        managed.leave()
    for managed in managed_objects:
        await managed.close()


@asynccontextmanager
async def keeper() -> AsyncIterator[Keeper]:
    """A keeper, whose objects are left when the block ends.

    Raises :class:`TaskCancelled` if somebody else cancels a task that keeps something open, as an
    asyncio.TaskGroup in an object does when it fails. An error of ``__aexit__`` is logged: it
    cannot undo what was handled.
    """
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            opened = Keeper(tasks)
            try:
                yield opened
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
            await close_all(opened.objects)
    except BaseExceptionGroup as group:
        lost, _ = group.split(TaskCancelled)
        failure = lost.exceptions[0] if lost is not None else group  # the process must end
    if failure is not None:
        raise failure
