"""What all stores have alike: a letter's record, and what is said of a record that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from tailrace.errors import CheckpointFenced, DeadLetterError
from tailrace.model import record_fields
from tailrace.model.checkpoint import Checkpoint, unreadable
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.gap import Gap, unreadable_gap


def read_record(document: Mapping[str, Any], *, scope: str, where: str) -> Checkpoint:
    """The checkpoint in a stored document that was found under the key ``scope``.

    Raises :class:`tailrace.errors.CheckpointCorrupt`, naming ``where`` (store and scope), also
    when the document is readable but belongs to another scope.
    """
    checkpoint = Checkpoint.from_document(document, where=where)
    if checkpoint.scope != scope:
        raise unreadable(where, f"it is that of scope {checkpoint.scope!r}")
    return checkpoint


def read_gap(document: Mapping[str, Any], *, scope: str, where: str) -> Gap:
    """The gap in a stored document that was found under the key ``scope``.

    Raises :class:`tailrace.errors.CheckpointCorrupt`, naming ``where`` (store, scope, digest), as
    :func:`read_record` does.
    """
    gap = Gap.from_document(document, where=where)
    if gap.scope != scope:
        raise unreadable_gap(where, f"it is that of scope {gap.scope!r}")
    return gap


def fenced(checkpoint: Checkpoint, stored: object, *, where: str) -> CheckpointFenced:
    """The error for a save that is not newer than what is ``stored``: (epoch, sequence)."""
    match stored:
        case (epoch, sequence):
            found = f"epoch {epoch}, sequence {sequence} is stored"
        case _:  # Gone again between the refused write and the look at what refused it.
            found = "something newer was stored"
    return CheckpointFenced(
        f"{where}: {found}, so epoch {checkpoint.epoch}, sequence {checkpoint.sequence} was not "
        "saved: another process follows this scope now, or an operator has set or reset its "
        "position. Restart this scope to follow from there"
    )


def letter_record(letter: DeadLetter) -> dict[str, Any]:
    """The record of a letter that waits; :func:`read_letter` reads it."""
    return {
        "scope": letter.scope,
        "handler": letter.handler,
        "letter": letter.id,
        "key": letter.key or b"",
        "event": letter.raw,
        # An error's message may hold halves of surrogate pairs, which UTF-8 has not.
        "error": letter.error.encode("utf-8", "backslashreplace").decode(),
        "attempts": letter.attempts,
        "at": letter.at.astimezone(UTC).isoformat(),
    }


def read_letter(record: Mapping[str, Any], *, where: str) -> DeadLetter:
    """The letter in a stored record, whatever its event holds.

    Raises :class:`tailrace.errors.DeadLetterError`, naming ``where``, for anything that
    :func:`letter_record` cannot have written.
    """
    try:
        return DeadLetter(
            scope=record_fields.typed(record, "scope", str),
            handler=record_fields.typed(record, "handler", str),
            id=record_fields.typed(record, "letter", str),
            key=bytes(record_fields.typed(record, "key", bytes)) or None,
            raw=bytes(record_fields.typed(record, "event", bytes)),
            error=record_fields.typed(record, "error", str),
            attempts=record_fields.count(record, "attempts"),
            at=record_fields.moment(record, "at"),
        )
    except (KeyError, ValueError) as error:
        raise unreadable_letter(where, record_fields.fault(error)) from error


def unreadable_letter(where: str, reason: str) -> DeadLetterError:
    """The error for a record that is no dead letter; ``where`` names it."""
    return DeadLetterError(
        f"{where}: the dead letter cannot be read: {reason}. Nothing was changed. Restore the "
        "store from a backup, or remove this record by hand if its event may be lost"
    )
