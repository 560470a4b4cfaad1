"""A dead letter as a document of MongoDB, and back; and the ``_id`` by which it is found.

The ``_id`` is ``<scope>/<handler>/<hash of the key>/<letter>``, so that every question is a range
of the index that a collection always has. No name of ours has a slash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter
from tailrace.stores.records import letter_record, read_letter, unreadable_letter


def to_document(letter: DeadLetter) -> dict[str, Any]:
    """The document of a letter that waits, but for its ``sequence``, which the server gives it."""
    event = ChangeEvent.from_raw(letter.raw)
    return {
        **letter_record(letter),
        "_id": letter_id(letter),
        "operation": event.operation_type,
        "ns": str(event.ns or ""),
    }


def from_document(document: Mapping[str, Any], name: str) -> tuple[tuple[bool, Any], DeadLetter]:
    """A letter in a document of the collection ``name``, and what orders it among others.

    Raises :class:`tailrace.errors.DeadLetterError` where there is none.
    """
    where = f"{name}, document {document.get('_id')!r}"
    letter, sequence = read_letter(document, where=where), document.get("sequence")
    if document["_id"] != letter_id(letter):
        raise unreadable_letter(where, "its _id is that of another letter")
    if not isinstance(sequence, Timestamp | int):  # a number was given by version 0.1
        raise unreadable_letter(where, "it has no sequence")
    return (isinstance(sequence, Timestamp), sequence), letter


def letter_id(letter: DeadLetter) -> str:
    """The ``_id`` of a letter."""
    return key_prefix(letter.scope, letter.handler, letter.key) + letter.id


def key_prefix(scope: str, handler: str, key: bytes | None) -> str:
    """What the ``_id`` of every letter of a key begins with."""
    return f"{scope}/{handler}/{hashlib.sha256(key or b'').hexdigest()[:32]}/"


def below(prefix: str) -> dict[str, Any]:
    """Every ``_id`` that begins with ``prefix``, which ends with "/": "0" is the next character."""
    return {"_id": {"$gte": prefix, "$lt": f"{prefix[:-1]}0"}}
