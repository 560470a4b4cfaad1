"""Makes the messages of events as the settings of a handler say."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from anyio import to_thread

from tailrace.destination.settings import MessageHandlerSettings
from tailrace.envelope import Message, messages
from tailrace.envelope.cloudevents import with_extension
from tailrace.event import ChangeEvent
from tailrace.event.trace_context import TraceField
from tailrace.model import Scope

_EVENTS_IN_A_THREAD = 50
_BYTES_IN_A_THREAD = 2**18
"""From so many events or bytes on, converting them takes longer than starting a thread."""

E = TypeVar("E", ChangeEvent, bytes)
T = TypeVar("T")


async def converted(convert: Callable[[Sequence[E]], T], events: Sequence[E]) -> T:
    """What ``convert`` makes of these events, in a thread if they are many or large: the loop goes
    on."""
    few = len(events) < _EVENTS_IN_A_THREAD
    if few and sum(map(_size, events)) < _BYTES_IN_A_THREAD:
        return convert(events)
    return await to_thread.run_sync(convert, events)


def _size(event: ChangeEvent | bytes) -> int:
    return len(event) if isinstance(event, bytes) else event.size


class MessageMaker:
    """Makes messages with the envelope, the JSON and the fields of a handler's settings.

    ``envelope``: another one than that of the settings. ``scope``: the one whose events come, if
    their trace goes along.
    """

    def __init__(
        self,
        settings: MessageHandlerSettings,
        envelope: str | None = None,
        *,
        scope: Scope | None = None,
    ) -> None:
        self._envelope = envelope or settings.envelope
        self._canonical = settings.json_format == "canonical"
        self._mapping = settings.fields.mapping()
        trace = scope.trace if scope is not None else ""
        self._trace = TraceField(trace, scope.name) if scope is not None and trace else None

    def of(self, events: Sequence[ChangeEvent], scope: str) -> list[Message]:
        """A message for each event of the named scope, at the same index.

        Takes milliseconds for large batches: see :func:`converted`. Raises ``ValueError`` for
        malformed BSON.
        """
        mapped = events if self._mapping is None else self._mapping.of(events)
        made = messages(mapped, scope, self._envelope, canonical=self._canonical)
        return made if self._trace is None else self._traced(made, events, self._trace)

    def _traced(
        self, made: Sequence[Message], events: Sequence[ChangeEvent], field: TraceField
    ) -> list[Message]:
        """The messages with the traces of the documents as they were before the mapping."""
        traced = []
        for message, event in zip(made, events, strict=True):
            if not message.is_empty and (trace := field.of(event)) is not None:
                message = message._replace(trace=trace)
                if self._envelope == "cloudevents":
                    message = with_extension(message, trace)
            traced.append(message)
        return traced
