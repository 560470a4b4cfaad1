"""The open handlers of a process: each is opened and closed alone, in a task of its own.

So a reload can open one anew while the others, and the object that it replaces, stay open.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import anyio
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.config.secret import Secret
from tailrace.engine import Handler
from tailrace.handlers import open_handler
from tailrace.handlers.failures import failure_policy
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.kept import Keeper, Kept, keeper
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
    lanes: int
    """``delivery.lanes``."""
    secrets: str
    """A digest of its secrets that are in files."""

    @classmethod
    def of(
        cls, name: str, settings: AnyHandlerSettings, follows: Iterable[Scope], lanes: int
    ) -> "HandlerPlan":
        """The plan as it is now. Reads files. Raises :class:`tailrace.errors.Unavailable`."""
        digest = sha256()
        for secret in _secrets(settings):
            digest.update(sha256(secret.read().encode()).digest())
        return cls(name, settings, tuple(follows), lanes, digest.hexdigest())

    def same_as(self, other: "HandlerPlan") -> bool:
        """Whether a handler that was opened with one is as one that is opened with the other."""
        kind = type_of(self.settings)
        return (
            (self.settings, self.secrets) == (other.settings, other.secrets)
            and (not kind.by_lanes or self.lanes == other.lanes)
            and (not kind.by_scope or set(self.follows) == set(other.follows))
        )

    @property
    def holds(self) -> str | None:
        """What no second handler may have while this one is open."""
        return type_of(self.settings).holds(self.settings)


@dataclass(eq=False, slots=True)
class OpenHandler:
    """A handler that is opened, or open, with a registry of its own."""

    plan: HandlerPlan
    registry: CollectorRegistry
    kept: Kept[Handler]

    def handler(self, delivery: DeliverySettings) -> Handler:
        """The handler, once it is open, with the policy for its failures that holds now."""
        found, of = self.kept.given, self.plan
        return replace(found, failure=failure_policy(of.name, of.settings, delivery, found))


class HandlerPool(Collector):
    """Opens handlers, and shows the metrics that the newest object of each handler has made."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self.open: dict[str, OpenHandler] = {}
        """By name, those to use now."""
        self._all: list[OpenHandler] = []
        """With those that handle what they have begun."""
        self._new: set[OpenHandler] = set()
        """Those that are not used yet."""

    async def add(
        self, plans: Iterable[HandlerPlan], delivery: DeliverySettings, *, waits: bool = False
    ) -> dict[str, OpenHandler]:
        """Opens handlers, one after another. They are used from :meth:`use` on.

        With ``waits``, objects whose destinations are down are opened later, and their calls wait.
        If one cannot be opened, those that were are closed again, and its error is raised.
        """
        found: dict[str, OpenHandler] = {}
        try:
            for plan in plans:
                registry = CollectorRegistry()
                opening = Opening(plan.name, delivery, registry, waits, plan.follows)
                kept = Kept(f"handler {plan.name!r}", open_handler(opening, plan.settings))
                each = found[plan.name] = OpenHandler(plan, registry, kept)
                self._keeper.keep(kept)
                self._all.append(each)
                self._new.add(each)
                await kept.opened()
        except BaseException:
            await self.discard(found.values())
            raise
        return found

    async def discard(self, handlers: Collection[OpenHandler]) -> None:
        """Closes handlers that were opened in vain, the last one first."""
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True):
            for each in reversed([*handlers]):
                await each.kept.close()
        # One that ignores its end is closed when it is open at last, and holds its file until then.
        self._new.difference_update(handlers)
        self._all = [each for each in self._all if each not in handlers or not each.kept.closed]

    def use(self, handlers: Mapping[str, OpenHandler]) -> None:
        """From now on, these are the open handlers."""
        self.open = dict(handlers)
        self._new.clear()

    def holder(self, held: str) -> str | None:
        """The handler that has what only one may have; ``None`` if none has it."""
        held_by = (each for each in self._all if each.plan.holds == held and not each.kept.closed)
        return next((each.plan.name for each in held_by), None)

    def sweep(self, used: Collection[object]) -> None:
        """Lets the handlers close that are neither among the open ones nor ``used`` by a scope."""
        kept = {*self.open.values(), *self._new, *used}
        for each in self._all:
            if each not in kept:
                each.kept.leave()
        self._all = [each for each in self._all if each in kept or not each.kept.closed]

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
async def handler_pool(registry: CollectorRegistry) -> AsyncIterator[HandlerPool]:
    """A pool, whose handlers are closed when the block ends. ``registry`` shows their metrics.

    Raises :class:`tailrace.errors.TaskCancelled` if an object cancels the task that keeps it open.
    """
    async with keeper() as kept:
        pool = HandlerPool(kept)
        registry.register(pool)
        yield pool


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
