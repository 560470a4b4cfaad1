"""Envelopes: the messages that destinations send for events.

Every envelope has a module with one function: events in, one :class:`Message` for each. Handlers of
a scope share the messages: each is made once and kept as long as its event is in flight.
"""

from collections.abc import Callable, Mapping, Sequence

from tailrace.envelope.cloudevents import cloudevents_messages
from tailrace.envelope.debezium import debezium_key, debezium_messages
from tailrace.envelope.message import NOTHING, Message
from tailrace.envelope.native import document_messages, native_messages
from tailrace.event import ChangeEvent
from tailrace.event.document_key import key_text
from tailrace.event.json_lines import CANONICAL, RELAXED, Form
from tailrace.event.last_change import overtaken

__all__ = ["ENVELOPES", "Message", "message_key", "messages"]

Maker = Callable[[Sequence[ChangeEvent], str, Form], list[Message]]
"""Makes the messages of events of the named scope; the form is that of documents and events."""

ENVELOPES: Mapping[str, Maker] = {
    "native": native_messages,
    "debezium": debezium_messages,
    "cloudevents": cloudevents_messages,
    "document": document_messages,
}


def messages(
    events: Sequence[ChangeEvent], scope: str, envelope: str, *, canonical: bool = False
) -> list[Message]:
    """One message for each event, at the same index.

    ``canonical``: the Extended JSON is canonical instead of relaxed, except in ``debezium``. Raises
    ``ValueError`` for an unknown envelope, and for an event that is malformed BSON.
    """
    make = ENVELOPES.get(envelope)
    if make is None:
        raise ValueError(f"no envelope is called {envelope!r}: use one of {', '.join(ENVELOPES)}")
    if envelope == "document" and (older := overtaken(events)):
        current = [event for index, event in enumerate(events) if index not in older]
        others = iter(messages(current, scope, envelope, canonical=canonical))
        return [NOTHING if index in older else next(others) for index in range(len(events))]
    kind = envelope, canonical
    cached: list[Message | None] = [event.cached(kind) for event in events]
    missing = events
    if any(cached):
        missing = [event for event, message in zip(events, cached, strict=True) if message is None]
    if missing:
        made = make(missing, scope, CANONICAL if canonical else RELAXED)
        for event, message in zip(missing, made, strict=True):
            event.cache(kind, message)
        if len(made) == len(cached):
            return made
        rest = iter(made)
        return [next(rest) if message is None else message for message in cached]
    return [message for message in cached if message is not None]


def message_key(id: bytes, envelope: str) -> bytes:
    """The key of the messages about the document with this ``{_id: …}``."""
    return debezium_key(id) if envelope == "debezium" else key_text(id).encode()
