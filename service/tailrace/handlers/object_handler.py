"""A function, or an object with ``write`` or ``__call__``, as a handler."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tailrace.config.handlers import BatchHandlerSettings
from tailrace.engine import Handler, OwnPosition, PerBatch, RunIdentity
from tailrace.errors import ConfigurationError, Problem, describe
from tailrace.event import ChangeEvent
from tailrace.handlers.destination import Destination
from tailrace.handlers.failures import outage_classes
from tailrace.handlers.function import function_calls
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.opening import OpenObject, opened
from tailrace.model import SinkPosition


def created(place: str, kind: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """An object of a class. Raises :class:`ConfigurationError` with this place."""
    try:
        return kind(*given, **named)
    except ConfigurationError:
        raise  # of a destination of our own
    except Exception as error:
        message = f"{getattr(kind, '__name__', kind)} cannot be created: {describe(error)}"
        raise ConfigurationError(Problem(place, message)) from error


@asynccontextmanager
async def object_handler(
    opening: Opening,
    target: Any,
    settings: BatchHandlerSettings,
    concurrency: int,
    batches: int = 1,
    commit: Mapping[str, Any] | None = None,
) -> AsyncIterator[Handler]:
    """The object as a handler. One that is an async context manager is entered and left.

    ``concurrency``: how many calls with one event may run at once, and ``batches`` how many with
    several. ``commit``: when the object commits, if it can; fields of :class:`Commit`. If its
    destination is down and ``opening.waits``, its calls raise
    :class:`tailrace.errors.Unavailable` until it is open. Raises :class:`ConfigurationError` if it
    cannot be entered for another reason.
    """

    def handler_of(usable: Any) -> Handler:
        return _handler(opening, usable, settings, concurrency, batches, commit or {})

    outages = outage_classes(opening.name, settings)
    async with opened(opening.name, target, outages, waits=opening.waits) as found:
        if found.is_open:
            yield handler_of(found.usable())
        else:
            yield _LaterHandler(found, handler_of).as_handler()


def _handler(
    opening: Opening,
    target: Any,
    settings: BatchHandlerSettings,
    concurrency: int,
    batches: int,
    commit: Mapping[str, Any],
) -> Handler:
    bounds: dict[str, Any] = {
        "events": settings.batch_size,
        "bytes": settings.batch_bytes,
        "linger_seconds": settings.linger_seconds,
        "concurrency": batches,
    }
    if hasattr(target, "write"):
        destination = Destination(opening.name, target, opening.registry)
        return Handler(
            opening.name,
            destination.calls(**bounds),
            destination.position,
            destination.commit(**commit),
        )
    batch = partial(PerBatch, **bounds)
    return Handler(opening.name, function_calls(target, concurrency=concurrency, batch=batch))


@dataclass(slots=True)
class _LaterHandler:
    """The handler of an object that is not open yet. It is called as the object's class says."""

    object: OpenObject
    handler_of: Callable[[Any], Handler]
    _made: Handler | None = None

    def as_handler(self) -> Handler:
        shape = self.handler_of(self.object.target)
        calls = replace(shape.calls, call=self._call)
        if isinstance(calls, PerBatch) and calls.on_ddl is not None:
            calls = replace(calls, on_ddl=self._on_ddl)
        position = OwnPosition(self._load) if shape.position is not None else None
        commit = shape.commit and replace(shape.commit, call=self._commit)
        return replace(shape, calls=calls, position=position, commit=commit, ready=self._ready)

    def _opened(self) -> Handler:
        usable = self.object.usable()
        if self._made is None:
            self._made = self.handler_of(usable)
        return self._made

    async def _ready(self, identity: RunIdentity) -> None:
        self._opened()

    async def _call(self, given: Any, identity: RunIdentity) -> Any:
        return await self._opened().calls.call(given, identity)

    async def _on_ddl(self, event: ChangeEvent, identity: RunIdentity) -> Any:
        calls = self._opened().calls
        if isinstance(calls, PerBatch) and calls.on_ddl is not None:
            await calls.on_ddl(event, identity)

    async def _commit(self, identity: RunIdentity) -> Any:
        commit = self._opened().commit
        return None if commit is None else await commit.call(identity)

    async def _load(self, identity: RunIdentity) -> SinkPosition | None:
        position = self._opened().position
        return None if position is None else await position.load(identity)
