"""What a handler gets of events: the rules of its ``fields``, between the engine and its calls.

The engine itself applies the protection, which concerns dead letters and log lines, too; the rest
happens in each call, so that its errors are errors of the call. A type may apply the mapping itself
(``maps_fields``), because it stores documents in several forms.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tailrace.config.handlers import AnyHandlerSettings
from tailrace.destination.messages import converted
from tailrace.destination.settings import DocumentHandlerSettings
from tailrace.engine import (
    Comparison,
    Handler,
    HeldKeys,
    HeldRows,
    PerBatch,
    PerEvent,
    Row,
    RunIdentity,
)
from tailrace.engine.ports import event_list
from tailrace.errors import ConfigurationError, Problem, Unavailable
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.field_protection import FieldProtection
from tailrace.model.snapshot import DocumentId


def protection_of(name: str, settings: AnyHandlerSettings) -> FieldProtection | None:
    """What hashes and masks for this handler. Reads a file.

    Raises :class:`ConfigurationError` if the key of the hashes cannot be read.
    """
    if not isinstance(settings, DocumentHandlerSettings):
        return None
    try:
        return settings.fields.protection()
    except Unavailable as error:
        raise ConfigurationError(Problem(f"handlers.{name}.fields.hash_key", str(error))) from error


def changes_id(settings: AnyHandlerSettings) -> bool:
    """Whether documents have another ``_id`` at the handler than in their collection."""
    named = settings.fields.hash if isinstance(settings, DocumentHandlerSettings) else ()
    return any(path.split(".")[0] == "_id" for path in named)


def shaped(
    handler: Handler, settings: AnyHandlerSettings, protection: FieldProtection | None
) -> Handler:
    """The handler, which gets events as its settings say."""
    if not isinstance(settings, DocumentHandlerSettings):
        return handler
    mapping = None if settings.maps_fields else settings.fields.mapping()
    if changes_id(settings):
        handler = replace(handler, comparison=None)  # no document is found by the key of a row
    if protection is None and mapping is None:
        return handler
    shape = Shape(mapping)
    return replace(
        handler,
        calls=handler.calls if mapping is None else _calls(handler.calls, shape),
        comparison=_comparison(handler, protection, shape),
        protection=protection,
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """What happens to events in a call."""

    mapping: FieldMapping | None

    async def of(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """The events as the handler gets them, at the same indices."""
        return events if self.mapping is None else await converted(self.mapping.of, events)


def _calls(calls: PerEvent | PerBatch, shape: Shape) -> PerEvent | PerBatch:
    call = calls.call
    if isinstance(calls, PerEvent):

        async def of_event(event: ChangeEvent, identity: RunIdentity) -> Any:
            (event,) = await shape.of([event])
            return await call(event, identity)

        return replace(calls, call=of_event)
    payload = calls.payload

    async def of_events(events: Sequence[ChangeEvent], identity: RunIdentity) -> Any:
        return await call(payload(await shape.of(events)), identity)

    return replace(calls, call=of_events, payload=event_list)


def _comparison(
    handler: Handler, protection: FieldProtection | None, shape: Shape
) -> Callable[[RunIdentity], AbstractAsyncContextManager[Comparison]] | None:
    opened = handler.comparison
    if opened is None:
        return None

    @asynccontextmanager
    async def comparison(identity: RunIdentity) -> AsyncIterator[Comparison]:
        async with opened(identity) as inner:
            yield ShapedComparison(inner, protection, shape)

    return comparison


@dataclass(frozen=True, slots=True)
class ShapedComparison:
    """Implements :class:`Comparison`: the rows are expected as calls with these events make them.

    The destination cannot compare by itself, because it does not get documents this way.
    """

    comparison: Comparison
    protection: FieldProtection | None
    shape: Shape

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        if self.protection is not None:
            documents = self.protection.of(documents)
        return await self.comparison.expected(await self.shape.of(documents))

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return await self.comparison.stored(collection, keys)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return await self.comparison.stored_keys(collection, after, most)
