"""The handlers of a process: an object for each scope that a handler follows, each kept alone.

So a reload can open one again while the others, and the object that it replaces, stay open, and a
scope that is removed or handed over takes only its own objects along. An object that is shared
serves all scopes of its handler, and stays open as long as there is one.
"""

import math
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from pydantic import BaseModel

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.handler_type import Opening
from tailrace.destination.keeper import (
    CLOSING_SECONDS,
    OPENING_SECONDS,
    Keeper,
    ManagedObject,
    close_all,
    keeper,
)
from tailrace.destination.secret import Secret
from tailrace.destination.tables import OpenTables
from tailrace.engine import Handler
from tailrace.handlers.open_handler import OpenHandler
from tailrace.handlers.types import type_of
from tailrace.model import Scope

_IN_VAIN_SECONDS = 10.0
"""How long the objects that were opened in vain may take to close."""

Key = tuple[str, str]
"""A scope and a handler, by their names."""


@dataclass(frozen=True, slots=True)
class HandlerPlan:
    """The inputs that a handler is opened with. ``follows``: the scopes whose changes it gets."""

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
        """Whether an object that was opened with one is as one that is opened with the other."""
        return (self.settings, self.secrets) == (other.settings, other.secrets)

    @property
    def holds(self) -> str | None:
        """What no second handler may have while this one is open."""
        return type_of(self.settings).holds(self.settings)


def handlers_of(
    handlers: Mapping[Key, OpenHandler], delivery: DeliverySettings
) -> Callable[[str], Mapping[str, Handler]]:
    """By scope, its handlers by name, with the policies for their failures that hold now."""
    return lambda scope: {n: h.handler(delivery) for (s, n), h in handlers.items() if s == scope}


class HandlerPool(Collector):
    """Opens handlers, and shows the metrics that the objects of those in use have made.

    With ``leased``, the objects of a scope are open while this process has its lease.
    """

    def __init__(self, keeper: Keeper, *, leased: bool, tables: OpenTables | None) -> None:
        self._keeper = keeper
        self._tables = tables
        self.open: dict[Key, OpenHandler] = {}
        """Those to use now."""
        self._objects: dict[ManagedObject[Any], OpenHandler] = {}
        """All objects that may be open, with a handler of each: also those that handle what they
        have begun."""
        self._new: list[ManagedObject[Any]] = []
        """Those that are not used yet."""
        self._leased = leased
        self._leases: set[str] = set()
        """The scopes whose leases this process has."""

    async def add(
        self,
        plans: Iterable[HandlerPlan],
        delivery: DeliverySettings,
        same: Collection[str] = (),
        *,
        waits: bool = False,
    ) -> dict[Key, OpenHandler]:
        """The handlers of all scopes of these plans, opened, but for objects that are open already.

        ``same``: the handlers whose plans have not changed. All are used from :meth:`use` on. With
        ``waits``, an object whose destination is down is opened later, and its calls wait. If one
        cannot be opened, those that were are closed again, and its error is raised:
        :class:`ConfigurationError` or :class:`StartRefused`.
        """
        wanted: dict[Key, OpenHandler] = {}
        try:
            for plan in plans:
                known = [h for (_, n), h in self.open.items() if n == plan.name and n in same]
                for scope in plan.follows:
                    handler = next((h for h in known if h.opening.scope == scope), None)
                    if handler is None:
                        handler = self._made(plan, scope, delivery, known, waits=waits)
                        known.append(handler)
                    wanted[scope.name, plan.name] = handler
            deadline = anyio.current_time() + (OPENING_SECONDS if waits else math.inf)
            for managed in self._new:
                await managed.opened(deadline - anyio.current_time())
        except BaseException:
            await self.discard()
            raise
        return wanted

    def _made(
        self,
        plan: HandlerPlan,
        scope: Scope,
        delivery: DeliverySettings,
        known: Sequence[OpenHandler],
        *,
        waits: bool,
    ) -> OpenHandler:
        """A handler, which is being opened if this process follows its scope."""
        if known and known[0].shared:
            return known[0].for_scope(scope)
        registry = CollectorRegistry()
        opening = Opening(plan.name, scope, delivery, registry, plan.follows, self._tables)
        shared = type_of(plan.settings).shared(plan.settings)
        if shared or not self._leased or scope.name in self._leases:
            handler = OpenHandler.of(opening, plan.settings, waits=waits)
            self._new.append(handler.managed)
            self._open_object(handler)
            return handler
        return OpenHandler.of(opening, plan.settings, waits=None)

    def _open_object(self, handler: OpenHandler) -> None:
        self._objects[handler.managed] = handler
        self._keeper.open(handler.managed)

    async def discard(self) -> None:
        """Closes the objects that were opened in vain, the last one first."""
        vain, self._new = self._new, []
        with anyio.move_on_after(_IN_VAIN_SECONDS, shield=True):
            await close_all(vain)
        # One that ignores its end is closed when it is open at last, and holds its file until then.

    def use(self, handlers: Mapping[Key, OpenHandler]) -> None:
        """From now on, these are the open handlers."""
        self.open = dict(handlers)
        self._new.clear()

    def holder(self, held: str) -> str | None:
        """The handler that has what only one may have; ``None`` if none has it."""
        for managed, of in self._objects.items():
            if type_of(of.settings).holds(of.settings) == held and not managed.is_closed:
                return of.opening.name
        return None

    def sweep(self, used: Iterable[object]) -> None:
        """Lets the objects close that neither the open handlers nor those ``used`` by a scope
        have."""
        handlers = [each for each in (*self.open.values(), *used) if isinstance(each, OpenHandler)]
        for managed in self._objects.keys() - {each.managed for each in handlers} - {*self._new}:
            managed.leave()
        self._objects = {
            managed: of for managed, of in self._objects.items() if not managed.is_closed
        }

    @asynccontextmanager
    async def entered(self, scope: str) -> AsyncIterator[None]:
        """While this process has the lease of the scope: its objects are open in the block."""
        mine = [
            handler for (of, _), handler in self.open.items() if of == scope and not handler.shared
        ]
        self._leases.add(scope)
        try:
            for handler in mine:
                if handler.managed.is_left:
                    handler.renew()
                self._open_object(handler)
            deadline = anyio.current_time() + OPENING_SECONDS
            for handler in mine:
                await handler.managed.opened(deadline - anyio.current_time())
            yield
        finally:
            self._leases.discard(scope)
            with anyio.move_on_after(CLOSING_SECONDS + 1, shield=True):
                await close_all(handler.managed for handler in mine)

    def collect(self) -> Iterable[Metric]:
        """The metrics of handler classes. Those of the same name and labels add up, as those of
        several objects of one handler."""
        registries = dict.fromkeys(
            handler.opening.registry
            for handler in self.open.values()
            if handler.managed.begun and not handler.managed.is_left
        )
        metrics: dict[str, Metric] = {}
        for registry in registries:
            for metric in registry.collect():
                same = metrics.setdefault(metric.name, metric)
                if same is not metric:
                    same.samples = _added_up([*same.samples, *metric.samples])
        return metrics.values()


@asynccontextmanager
async def handler_pool(
    registry: CollectorRegistry, tables: OpenTables | None = None, *, leased: bool = False
) -> AsyncIterator[HandlerPool]:
    """A pool, whose handlers are closed when the block ends. ``registry`` shows their metrics.
    ``tables``: opens those that a pipeline makes of a lake.

    Raises :class:`tailrace.errors.TaskCancelled` if an object cancels the task that keeps it open.
    """
    async with keeper() as objects:
        pool = HandlerPool(objects, leased=leased, tables=tables)
        registry.register(pool)
        yield pool


def _added_up(samples: Iterable[Sample]) -> list[Sample]:
    found: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
    for each in samples:
        same = found.setdefault(key := (each.name, frozenset(each.labels.items())), each)
        if same is not each and not each.name.endswith("_created"):
            found[key] = same._replace(value=same.value + each.value)
    return [*found.values()]


def _secrets(value: Any) -> Iterator[Secret]:
    """The secrets in a section that are in files."""
    if isinstance(value, Secret):
        yield from [value] if value.file is not None else []
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secrets(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _secrets(item)
