"""A letter as a document of MongoDB, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Any

from bson import Int64
from bson.binary import Binary

from tailrace.dead_letters.held import Identity
from tailrace.dead_letters.record import encodable, moment_text, readable, unreadable
from tailrace.event.dead_letter import DeadLetter
from tailrace.model import record_fields

SEQUENCE = "sequence"
"""The ``_id`` of the document that numbers the letters; those of letters have slashes."""


def to_document(letter: DeadLetter, path: str, sequence: int) -> dict[str, Any]:
    """The document of a letter that waits."""
    return {
        "_id": path,
        "letter": letter.id,
        "scope": letter.scope,
        "handler": letter.handler,
        "sequence": Int64(sequence),
        "error": encodable(letter.error),
        "attempts": letter.attempts,
        "at": moment_text(letter.at),
        "operation": letter.event.operation_type,
        "ns": str(letter.event.ns or ""),
        "key": Binary(_bytes(letter.key)),
        "event": Binary(letter.raw),
    }


def letter_of(document: Mapping[str, Any], name: str) -> tuple[int, DeadLetter]:
    """The sequence number and the letter in a document of the collection ``name``.

    Raises :class:`tailrace.errors.DeadLetterError` where there is none.
    """
    try:
        letter = DeadLetter(
            scope=record_fields.typed(document, "scope", str),
            handler=record_fields.typed(document, "handler", str),
            raw=bytes(record_fields.typed(document, "event", bytes)),
            error=record_fields.typed(document, "error", str),
            attempts=record_fields.count(document, "attempts"),
            at=record_fields.moment(document, "at"),
        )
        readable(letter, record_fields.typed(document, "letter", str))
        if document["_id"] != path_of(letter):
            raise ValueError("its _id is that of another letter")
        return record_fields.count(document, "sequence"), letter
    except (KeyError, ValueError) as error:
        raise unreadable(_where(document, name), record_fields.fault(error)) from error


def key_of(document: Mapping[str, Any], name: str) -> tuple[Identity, bytes | None]:
    """Which letter of which key a document is, without its event.

    Raises :class:`tailrace.errors.DeadLetterError` where it does not say so.
    """
    try:
        parts = (
            record_fields.typed(document, each, str) for each in ("scope", "handler", "letter")
        )
        return Identity(*parts), bytes(record_fields.typed(document, "key", bytes)) or None
    except (KeyError, ValueError) as error:
        raise unreadable(_where(document, name), record_fields.fault(error)) from error


def path_of(letter: DeadLetter) -> str:
    """The ``_id`` of a letter."""
    return prefix_of(letter.scope, letter.handler, letter.key) + letter.id


def prefix_of(scope: str, handler: str, key: Hashable) -> str:
    """What the ``_id`` of every letter of a key begins with; no name of ours has a slash."""
    return f"{scope}/{handler}/{hashlib.sha256(_bytes(key)).hexdigest()[:32]}/"


def _bytes(key: Hashable) -> bytes:
    """A :attr:`ChangeEvent.key`, or nothing where the event has none."""
    return key if isinstance(key, bytes) else b""


def _where(document: Mapping[str, Any], name: str) -> str:
    return f"{name}, document {document.get('_id')!r}"
