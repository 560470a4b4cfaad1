"""Makes the messages of events as the settings of a handler say."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from anyio import to_thread

from tailrace.destination.settings import MessageHandlerSettings
from tailrace.envelope import Message, messages
from tailrace.event import ChangeEvent

_IN_A_THREAD = 50
"""From this many events on, converting them takes longer than starting a thread."""

E = TypeVar("E")
T = TypeVar("T")


async def converted(convert: Callable[[Sequence[E]], T], events: Sequence[E]) -> T:
    """What ``convert`` makes of these events, in a thread if they are many: the loop goes on."""
    if len(events) < _IN_A_THREAD:
        return convert(events)
    return await to_thread.run_sync(convert, events)


class MessageMaker:
    """Makes messages with the envelope, the JSON and the fields of a handler's settings.

    ``envelope``: another one than that of the settings.
    """

    def __init__(self, settings: MessageHandlerSettings, envelope: str | None = None) -> None:
        self._envelope = envelope or settings.envelope
        self._canonical = settings.json_format == "canonical"
        self._mapping = settings.fields.mapping()

    def of(self, events: Sequence[ChangeEvent], scope: str) -> list[Message]:
        """A message for each event of the named scope, at the same index.

        Takes milliseconds for large batches: see :func:`converted`. Raises ``ValueError`` for
        malformed BSON.
        """
        mapped = events if self._mapping is None else self._mapping.of(events)
        return messages(mapped, scope, self._envelope, canonical=self._canonical)
