"""What all stores say alike: that a record is not what was asked for, or that it is newer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.errors import CheckpointFenced
from tailrace.model.checkpoint import Checkpoint, unreadable
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
