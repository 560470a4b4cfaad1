"""A handler of one scope, with the object that it calls.

:mod:`tailrace.handlers.pool` has those of a process.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from tailrace.config.delivery import DeliverySettings
from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.handler_type import Opening
from tailrace.destination.keeper import OPENING_SECONDS, ManagedObject, keeper
from tailrace.destination.object_handler import forwarded
from tailrace.engine import Handler, PerEvent
from tailrace.engine.handle.outage import is_outage
from tailrace.errors import ConfigurationError, Problem, TailraceError, describe
from tailrace.event.field_protection import FieldProtection
from tailrace.handlers.failures import failure_policy, outage_classes
from tailrace.handlers.shaping import protection_of, shaped, transform_of
from tailrace.handlers.transforms import Transform
from tailrace.handlers.types import type_of
from tailrace.model import Scope


@dataclass(eq=False, slots=True)
class OpenHandler:
    """A handler of one scope. Others have the same object, if that is shared.

    ``managed``: its object, which is open, is being opened, or is opened with the scope's lease.
    """

    opening: Opening
    settings: AnyHandlerSettings
    managed: ManagedObject[Any]
    shared: bool
    protection: FieldProtection | None = None
    transform: Transform | None = None
    _object: Any = None
    """What the calls of ``_made`` go to."""
    _made: Handler | None = None

    @classmethod
    def of(
        cls,
        opening: Opening,
        settings: AnyHandlerSettings,
        create: Callable[[], Any] | None = None,
        *,
        waits: bool | None = False,
    ) -> "OpenHandler":
        """One whose object is made, and not open yet. ``create`` makes it instead of its type.

        With ``waits``, an object whose destination is down is opened later; with ``None``, one that
        fails in any other way, too. Raises :class:`ConfigurationError`.
        """
        kind = type_of(settings)
        kind.require_installed(opening.name)
        shared = create is None and kind.shared(settings)
        managed = managed_object(opening, settings, create, waits=waits, shared=shared)
        managed.target  # noqa: B018 - it is made
        protection = protection_of(opening.name, settings)
        transform = transform_of(opening.name, settings)
        return cls(opening, settings, managed, shared, protection, transform)

    def for_scope(self, scope: Scope) -> "OpenHandler":
        """The same for another scope, with the same object."""
        opening = replace(self.opening, scope=scope)
        return replace(self, opening=opening, _object=None, _made=None)

    def renew(self) -> None:
        """Takes another object in the place of the one that was left."""
        self.opening = replace(self.opening, registry=CollectorRegistry())
        self.managed = managed_object(self.opening, self.settings)

    def handler(self, delivery: DeliverySettings) -> Handler:
        """The handler, with the policy for its failures that holds now.

        While its object is not open, its calls raise :class:`tailrace.errors.Unavailable`.
        """
        if self._made is not None and isinstance(self._made.calls, PerEvent):
            self._made = None  # it has no state, and depends on delivery.lanes
        self.opening = replace(self.opening, delivery=delivery)
        target = self.managed.usable() if self.managed.is_open else self.managed.target
        handler = self._handler_of(target)
        if not self.shared or hasattr(target, "__aenter__"):
            handler = forwarded(handler, lambda: self._handler_of(self.managed.usable()))
        failure = failure_policy(self.opening.name, self.settings, delivery, handler)
        return replace(handler, failure=failure)

    def _handler_of(self, target: Any) -> Handler:
        if self._made is None or self._object is not target:
            kind = type_of(self.settings)
            made = kind.handler(self.opening, self.settings, target)
            made = shaped(made, self.settings, self.protection, self.transform)
            self._object, self._made = target, made
        return self._made


def managed_object(
    opening: Opening,
    settings: AnyHandlerSettings,
    create: Callable[[], Any] | None = None,
    *,
    waits: bool | None = None,
    shared: bool = False,
) -> ManagedObject[Any]:
    """The object of a handler as a :class:`Keeper` keeps it."""
    outages = outage_classes(opening.name, settings)

    def refused(target: Any, error: BaseException) -> BaseException:
        if isinstance(error, TailraceError):
            return error
        message = f"{type(target).__name__} cannot be opened: {describe(error)}"
        if is_outage(error, outages):
            message += ". 'tailrace run' starts, and waits for it"
        problem = ConfigurationError(Problem(f"handlers.{opening.name}", message))
        problem.__cause__ = error
        return problem

    return ManagedObject(
        f"handler {opening.name!r}",
        create or partial(type_of(settings).create, opening, settings),
        lambda error: waits is None or (waits and is_outage(error, outages)),
        refused,
        {"handler": opening.name} | ({} if shared else {"scope": opening.scope.name}),
    )


@asynccontextmanager
async def open_handler(
    opening: Opening,
    settings: AnyHandlerSettings,
    create: Callable[[], Any] | None = None,
    *,
    waits: bool = False,
) -> AsyncIterator[Handler]:
    """Opens a handler of a scope, and closes it when the block ends. Raises as
    :meth:`HandlerPool.add`."""
    async with keeper() as objects:
        opened = OpenHandler.of(opening, settings, create, waits=waits)
        objects.open(opened.managed)
        await opened.managed.opened(OPENING_SECONDS if waits else math.inf)
        yield opened.handler(opening.delivery)
