"""The envelopes without an envelope: the event as MongoDB sent it, or only its document."""

from collections.abc import Sequence

from tailrace.envelope.event_json import event_texts
from tailrace.envelope.identity import event_id, key_of
from tailrace.envelope.message import NOTHING, Message
from tailrace.event import ChangeEvent
from tailrace.event.json_lines import Form, json_texts


def native_messages(events: Sequence[ChangeEvent], scope: str, form: Form) -> list[Message]:
    """The whole event as Extended JSON, as in a file of lines. DDL has no key."""
    return [Message(key, text, identity) for text, identity, key in event_texts(events, form)]


def document_messages(events: Sequence[ChangeEvent], scope: str, form: Form) -> list[Message]:
    """The document after the change as Extended JSON; a delete has no value.

    Nothing for other events without a document: DDL, and updates whose document was not asked for
    or does not exist any more (then their delete follows).
    """
    documents = [event.field_bytes("fullDocument") for event in events]
    texts = iter(json_texts([raw for raw in documents if raw is not None], form))
    return [
        Message(key_of(event), next(texts), event_id(event))
        if raw is not None
        else Message(key_of(event), None, event_id(event))
        if event.operation_type == "delete"
        else NOTHING
        for event, raw in zip(events, documents, strict=True)
    ]
