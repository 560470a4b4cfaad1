"""What a handler gets: its ``fields`` and ``transform``, between the engine and its calls.

The engine itself applies the protection, which concerns dead letters and log lines, too. The
transform and then the mapping happen in each call, so that their errors are errors of the call. A
type may apply the mapping itself (``maps_fields``), because it stores documents in several forms.
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
from tailrace.errors import ConfigurationError, Problem, Refused, Unavailable
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.field_mapping import FieldMapping
from tailrace.event.field_protection import FieldProtection
from tailrace.handlers.transforms import Transform, deleted
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


def transform_of(name: str, settings: AnyHandlerSettings) -> Transform | None:
    """The function that changes documents for this handler. Raises :class:`ConfigurationError`."""
    target = settings.transform if isinstance(settings, DocumentHandlerSettings) else None
    return None if target is None else Transform.of_target(name, target)


def shaped(
    handler: Handler,
    settings: AnyHandlerSettings,
    protection: FieldProtection | None,
    transform: Transform | None,
) -> Handler:
    """The handler, which gets events as its settings say."""
    if not isinstance(settings, DocumentHandlerSettings):
        return handler
    mapping = None if settings.maps_fields else settings.fields.mapping()
    if changes_id(settings):
        handler = replace(handler, comparison=None)  # no document is found by the key of a row
    if protection is None and transform is None and mapping is None:
        return handler
    shape = Shape(transform, mapping, keeps_all=handler.position is not None)
    calls = handler.calls if transform is None and mapping is None else _calls(handler.calls, shape)
    comparison = _comparison(handler, protection, shape)
    return replace(handler, calls=calls, comparison=comparison, protection=protection)


@dataclass(frozen=True, slots=True)
class Shape:
    """What happens to events in a call.

    With ``keeps_all``, the handler gets every event, because its destination stores the position of
    the last one: a delete instead of an insert whose document is left out.
    """

    transform: Transform | None
    mapping: FieldMapping | None
    keeps_all: bool = False

    async def of(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent | None]:
        """The events as the handler gets them, at the same indices; ``None`` for one that it does
        not get."""
        made: Sequence[ChangeEvent | None] = events
        if self.transform is not None:
            made = await self.transform.of(events)
            if self.keeps_all:
                pairs = zip(made, events, strict=True)
                made = [deleted(event) if one is None else one for one, event in pairs]
        if self.mapping is None:
            return made
        mapped = iter(await converted(self.mapping.of, [each for each in made if each is not None]))
        return [None if each is None else next(mapped) for each in made]


def _calls(calls: PerEvent | PerBatch, shape: Shape) -> PerEvent | PerBatch:
    call = calls.call
    if isinstance(calls, PerEvent):

        async def of_event(event: ChangeEvent, identity: RunIdentity) -> Any:
            (made,) = await shape.of([event])
            return None if made is None else await call(made, identity)

        return replace(calls, call=of_event)
    payload = calls.payload

    async def of_events(events: Sequence[ChangeEvent], identity: RunIdentity) -> Any:
        made = await shape.of(events)
        indices = [at for at, each in enumerate(made) if each is not None]
        if not indices:
            return None
        try:
            return await call(payload([each for each in made if each is not None]), identity)
        except Refused as error:
            if len(indices) == len(events) or not (reasons := error.of(len(indices))):
                raise
            raise Refused({indices[at]: why for at, why in reasons.items()}) from error

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

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row | None]:
        if self.protection is not None:
            documents = self.protection.of(documents)
        made = {
            at: event
            for at, event in enumerate(await self.shape.of(documents))
            if event is not None and event.operation_type != "delete"
        }
        try:
            rows = await self.comparison.expected(list(made.values())) if made else ()
        except Refused as error:
            indices = list(made)
            reasons = error.of(len(indices)).items()
            raise Refused({indices[at]: why for at, why in reasons}) from error
        expected = dict(zip(made, rows, strict=True))
        return [expected.get(at) for at in range(len(documents))]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return await self.comparison.stored(collection, keys)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return await self.comparison.stored_keys(collection, after, most)
