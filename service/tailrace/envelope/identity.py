"""Which event and which document a message is about."""

from tailrace.event import ChangeEvent
from tailrace.event.bson import INT32, encoded
from tailrace.event.extended_json import to_json

_DATA = b"\x02_data\0"
_DATA_AT = 4 + len(_DATA) + 4


def event_id(event: ChangeEvent) -> str:
    """A text that is the same at every delivery of the event, and of no other event.

    It is the ``_data`` of a resume token, and the canonical Extended JSON of other ids.
    """
    token = event.field_bytes("_id") or encoded(b"")
    data = token_data(token)
    return to_json(token, canonical=True) if data is None else data.decode()


def token_data(token: bytes) -> bytes | None:
    """The text of a resume token; ``None`` for an id of another form."""
    if token.startswith(_DATA, 4) and _DATA_AT + INT32(token, _DATA_AT - 4)[0] + 1 == len(token):
        data = token[_DATA_AT:-2]
        return data if data.isalnum() else None
    return None


def key_of(event: ChangeEvent) -> bytes | None:
    """The key of a message about the event's document: its ``_id``, the same in all its life."""
    text = event.key_text
    return None if text is None else text.encode()
