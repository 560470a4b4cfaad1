"""The open handlers of a process: each is opened and closed alone, in a task of its own.

So a reload can open one anew while the others, and the object that it replaces, stay open.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import anyio
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.secret import Secret
from tailrace.engine import Handler
from tailrace.engine.handle.isolation import required
from tailrace.errors import TaskCancelled
from tailrace.handlers import open_handler
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.types import type_of
from tailrace.model import Scope

_CLOSING_SECONDS = 10.0
"""How long the handlers that were opened in vain may take to close."""


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """With what a handler is opened. ``follows``: the scopes whose changes it gets."""

    name: str
    settings: AnyHandlerSettings
    follows: tuple[Scope, ...]
    secrets: str
    """A digest of its secrets that are in files."""

    @classmethod
    def of(cls, name: str, settings: AnyHandlerSettings, follows: Iterable[Scope]) -> "HandlerPlan":
        """The plan as it is now. Reads files. Raises :class:`tailrace.errors.Unavailable`."""
        digest = sha256()
        for secret in _secrets(settings):
            digest.update(sha256(secret.read().encode()).digest())
        return cls(name, settings, tuple(follows), digest.hexdigest())

    def same_as(self, other: "HandlerPlan") -> bool:
        """Whether a handler that was opened with one is as one that is opened with the other."""
        by_scope = type_of(self.settings).by_scope
        return (self.settings, self.secrets) == (other.settings, other.secrets) and (
            not by_scope or set(self.follows) == set(other.follows)
        )

    @property
    def holds(self) -> str | None:
        """What no second handler may have while this one is open."""
        return type_of(self.settings).holds(self.settings)


@dataclass(eq=False, slots=True)
class OpenHandler:
    """A handler that is opened, or open, until :meth:`close`."""

    plan: HandlerPlan
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _handler: Handler | None = None
    _failure: Exception | None = None
    _decided: anyio.Event = field(default_factory=anyio.Event)
    _life: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _closing: anyio.Event = field(default_factory=anyio.Event)
    _closed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def handler(self) -> Handler:
        """The handler, once it is open."""
        assert self._handler is not None  # noqa: S101 - for the type checker
        return self._handler

    async def opened(self) -> None:
        """Returns when it is open. Raises what has kept it from that."""
        await self._decided.wait()
        if self._failure is not None:
            raise self._failure

    async def run(self, opening: Opening) -> None:
        """Keeps it open. A failure while it is open is raised here."""
        try:
            with self._life:
                async with open_handler(opening, self.plan.settings) as self._handler:
                    self._decided.set()
                    await self._closing.wait()
        except Exception as error:
            if self._decided.is_set():
                raise
            self._failure = error
        finally:
            self._decided.set()
            self._closed.set()

    def leave(self) -> None:
        """Lets it close."""
        self._closing.set()

    async def close(self) -> None:
        """Closes it, or ends the attempt to open it."""
        self._closing.set()
        if not self._decided.is_set():
            self._life.cancel()
        await self._closed.wait()


class HandlerPool(Collector):
    """Opens handlers, and shows the metrics that the newest object of each handler has made."""

    def __init__(self, delivery: DeliverySettings, tasks: TaskGroup) -> None:
        self._delivery = delivery
        self._tasks = tasks
        self._host = asyncio.current_task()
        self.open: dict[str, OpenHandler] = {}
        """By name, those to use now."""
        self._all: list[OpenHandler] = []
        """In the order of their opening; with those that handle what they have begun."""
        self._new: set[OpenHandler] = set()
        """Those that are not used yet."""

    async def add(
        self, plans: Iterable[HandlerPlan], *, waits: bool = False
    ) -> dict[str, OpenHandler]:
        """Opens handlers, one after another. They are used from :meth:`use` on.

        With ``waits``, objects whose destinations are down are opened later, and their calls wait.
        If one cannot be opened, those that were are closed again, and its error is raised.
        """
        found: dict[str, OpenHandler] = {}
        try:
            for plan in plans:
                each = found[plan.name] = OpenHandler(plan)
                opening = Opening(plan.name, self._delivery, each.registry, waits, plan.follows)
                self._tasks.start_soon(self._keep, each, opening, name=f"{plan.name} kept")
                self._all.append(each)
                self._new.add(each)
                await each.opened()
        except BaseException:
            await self.discard(found)
            raise
        return found

    async def _keep(self, each: OpenHandler, opening: Opening) -> None:
        try:
            await required(each.run, f"the task that keeps handler {opening.name!r} open", opening)
        except TaskCancelled as error:
            if self._host is not None and self._host.cancelling() and error.__cause__ is not None:
                raise error.__cause__ from None  # everything was cancelled: the process ends
            raise

    async def discard(self, handlers: Mapping[str, OpenHandler]) -> None:
        """Closes handlers that were opened in vain."""
        self._new.difference_update(handlers.values())
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
            await self._close(handlers.values())

    def use(self, handlers: Mapping[str, OpenHandler]) -> None:
        """From now on, these are the open handlers."""
        self.open = dict(handlers)
        self._new.clear()

    def holder(self, held: str) -> str | None:
        """The handler that has what only one may have; ``None`` if none has it."""
        return next((each.plan.name for each in self._all if each.plan.holds == held), None)

    def sweep(self, used: Collection[OpenHandler]) -> None:
        """Lets the handlers close that are neither among the open ones nor ``used`` by a scope."""
        kept = {*self.open.values(), *self._new, *used}
        for each in self._all:
            if each not in kept:
                each.leave()
        self._all = [each for each in self._all if each in kept]

    async def close(self) -> None:
        """Closes all, the last one first."""
        self.open = {}
        await self._close(list(self._all))

    async def _close(self, handlers: Collection[OpenHandler]) -> None:
        for each in reversed([*handlers]):
            await each.close()
            if each in self._all:
                self._all.remove(each)

    def collect(self) -> Iterable[Metric]:
        """The metrics of handler classes; two classes may have metrics of the same name."""
        found: dict[str, Metric] = {}
        for each in self.open.values():
            for metric in each.registry.collect():
                same = found.setdefault(metric.name, metric)
                if same is not metric:
                    same.samples.extend(metric.samples)
        return found.values()


@asynccontextmanager
async def handler_pool(
    delivery: DeliverySettings, registry: CollectorRegistry
) -> AsyncIterator[HandlerPool]:
    """A pool, whose handlers are closed when the block ends. ``registry`` shows their metrics.

    Raises :class:`TaskCancelled` if an object cancels the task that keeps it open.
    """
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            pool = HandlerPool(delivery, tasks)
            registry.register(pool)
            try:
                yield pool
            except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
                failure = error
            await pool.close()
    except BaseExceptionGroup as group:
        lost, _ = group.split(TaskCancelled)
        failure = lost.exceptions[0] if lost is not None else group  # the process must end
    if failure is not None:
        raise failure


def _secrets(value: Any) -> Iterator[Secret]:
    """The secrets in a section that are in files."""
    if isinstance(value, Secret):
        yield from [value] if value.file is not None else []
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _secrets(each)
