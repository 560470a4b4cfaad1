"""A dead letter as a document of MongoDB, and back.

Its ``_id`` is ``<scope>/<handler>/<hash of the key>/<letter>``, so that every query is a range of
the index on ``_id``. Names of scopes and handlers have no slash.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter
from tailrace.stores.records import letter_record, read_letter, unreadable_letter


def to_document(letter: DeadLetter) -> dict[str, Any]:
    """The document of an unresolved letter, without the ``sequence``, which the server sets."""
    event = ChangeEvent.from_raw(letter.raw)
    return {
        **letter_record(letter),
        "_id": letter_id(letter),
        "operation": event.operation_type,
        "ns": str(event.ns or ""),
    }


def from_document(document: Mapping[str, Any], name: str) -> tuple[Timestamp, DeadLetter]:
    """The sequence and the letter of a document of the collection ``name``.

    Raises :class:`tailrace.errors.DeadLetterError` where it is no letter.
    """
    where = f"{name}, document {document.get('_id')!r}"
    letter, sequence = read_letter(document, where=where), document.get("sequence")
    if document["_id"] != letter_id(letter):
        raise unreadable_letter(where, "its _id is that of another letter")
    if not isinstance(sequence, Timestamp):
        raise unreadable_letter(where, "it has no sequence")
    return sequence, letter


def letter_id(letter: DeadLetter) -> str:
    """The ``_id`` of a letter."""
    return key_prefix(letter.scope, letter.handler, letter.key) + letter.id


def key_prefix(scope: str, handler: str, key: bytes | None) -> str:
    """The prefix of the ``_id`` of every letter of a key."""
    return f"{scope}/{handler}/{hashlib.sha256(key or b'').hexdigest()[:32]}/"


def below(prefix: str) -> dict[str, Any]:
    """A filter for each ``_id`` with ``prefix``, which ends with "/"; "0" is the next character."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]}0"}}
