"""The common part of all stores: the record of a letter, and the errors for refused records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from tailrace.errors import CheckpointCorrupt, CheckpointFenced
from tailrace.event.extended_json import to_json
from tailrace.model.checkpoint import Checkpoint
from tailrace.model.dead_letter import DeadLetter, DiscardedLetter, LetterHead, LetterUnreadable
from tailrace.model.record_codec import document, instance
from tailrace.model.stored_record import StoredRecord
from tailrace.model.verification import Verification

if TYPE_CHECKING:
    from tailrace.engine.ports import CheckpointStore

R = TypeVar("R", bound=StoredRecord)


def read_record(kind: type[R], document: Any, *, scope: str, where: str) -> R:
    """The checkpoint or gap in a document; a record of another scope counts as unreadable."""
    record = kind.from_document(document, where=where)
    if record.scope != scope:
        raise kind.unreadable(where, f"it is that of scope {record.scope!r}")
    return record


def read_json(kind: type[R], text: bytes, *, scope: str, where: str) -> R:
    """The record in a text of JSON."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise kind.unreadable(where, f"it is not JSON ({error})") from error
    return read_record(kind, document, scope=scope, where=where)


def fenced(checkpoint: Checkpoint, stored: object, *, where: str) -> CheckpointFenced:
    """The error for a save that is not newer than the ``stored`` (epoch, sequence)."""
    match stored:
        case (epoch, sequence):
            reason = f"epoch {epoch}, sequence {sequence} is stored"
        case _:  # removed between the refused write and the read after it
            reason = "something newer was stored"
    return CheckpointFenced(
        f"{where}: {reason}, so epoch {checkpoint.epoch}, sequence {checkpoint.sequence} was not "
        "saved: another process follows this scope now, or an operator has set or reset its "
        "position. 'tailrace scopes restart SCOPE' follows from there"
    )


async def claim_first(store: CheckpointStore, scope: str, epoch: int, *, where: str) -> Checkpoint:
    """Claims a scope without a checkpoint; raises if there is one: its epoch is not less."""
    claimed, found = replace(Checkpoint.nowhere(scope), epoch=epoch), await store.load(scope)
    if found is not None:
        raise fenced(claimed, found.version, where=where)
    await store.save(claimed)
    return claimed


def letter_record(letter: DeadLetter) -> dict[str, Any]:
    """The record of an unresolved dead letter."""
    record = document(letter)
    record["letter"], record["event"] = record.pop("id"), record.pop("raw")
    # An error message may hold halves of surrogate pairs, which UTF-8 cannot encode.
    error = letter.error.encode("utf-8", "backslashreplace").decode()
    return record | {"key": letter.key or b"", "error": error}


def read_letter(record: Mapping[str, Any], *, where: str) -> DeadLetter:
    """The dead letter in a record that :func:`letter_record` made, whatever its event holds."""
    try:
        fields = {**record, "id": record.get("letter"), "raw": record.get("event")}
        return instance(DeadLetter, fields)
    except ValueError as error:
        raise unreadable_letter(where, str(error)) from error


def read_head(record: Mapping[str, Any], arrival: str, *, where: str) -> LetterHead:
    """A record without its event. One that cannot be read is as far as it can be shown."""
    try:
        letter = read_letter({**record, "event": b""}, where=where)
    except LetterUnreadable as error:
        scope, handler, id = (str(record.get(name)) for name in ("scope", "handler", "letter"))
        at = datetime.fromtimestamp(0, UTC)
        return LetterHead(scope, handler, id, None, str(error), 0, at, arrival, str(error))
    named = (letter.scope, letter.handler, letter.id, letter.key, letter.error)
    return LetterHead(*named, letter.attempts, letter.at, arrival)


def letter_fenced(scope: str, epoch: int, claimed: int, *, where: str) -> CheckpointFenced:
    """The error for a dead letter of an owner whose epoch is less than the ``claimed`` one."""
    return CheckpointFenced(
        f"{where}, scope {scope!r}: epoch {claimed} has claimed the scope, so no dead letter of "
        f"epoch {epoch} is stored: another process follows this scope now, or an operator has set "
        "or reset its position. 'tailrace scopes restart SCOPE' follows from there"
    )


MOST_DISCARDED = 10_000
"""So many dead letters that were discarded are looked at."""


def last_discarded(rows: Iterable[Sequence[Any]]) -> Mapping[bytes | None, DiscardedLetter]:
    """By key the first of these rows: key, id, error and time, the last letter first. A damaged
    row is left out."""
    letters = dict[bytes | None, DiscardedLetter]()
    for key, id, error, at in rows:
        with suppress(ValueError, TypeError):
            time = at if isinstance(at, datetime) else datetime.fromisoformat(at)
            time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
            letters.setdefault(bytes(key) or None, DiscardedLetter(str(id), str(error), time))
    return letters


async def readable(
    read: Callable[[Any], Verification], records: Iterable[Any]
) -> list[Verification]:
    """The verifications in these records; one that cannot be read is left out, and logged.

    In a thread: a record may have thousands of differences, and changes go on meanwhile.
    """
    return await to_thread.run_sync(_readable, read, records)


def _readable(read: Callable[[Any], Verification], records: Iterable[Any]) -> list[Verification]:
    verifications: list[Verification] = []
    for record in records:
        try:
            verifications.append(read(record))
        except CheckpointCorrupt as error:
            import structlog  # here: commands that read no verification start without it

            structlog.get_logger().warning("verification.unreadable", error=str(error))
    return verifications


def verification_fenced(verification: Verification, *, where: str) -> CheckpointFenced:
    """The error for the progress of a verification that another process goes on with."""
    return CheckpointFenced(
        f"{where}, scope {verification.scope!r}: another process follows this scope now, and has "
        f"stored the verification of handler {verification.handler!r}"
    )


def unreadable_letter(where: str, reason: str) -> LetterUnreadable:
    """The error for a record that is not a dead letter; ``where`` names the record."""
    return LetterUnreadable(
        f"{where}: the dead letter cannot be read: {reason}. Nothing was changed. Restore the "
        "store from a backup, or remove this record by hand if its event may be lost"
    )


def letter_line(letter: DeadLetter) -> str:
    """A dead letter as one line of JSON, for grep and jq; its event is canonical Extended JSON.

    An event that is not BSON (a damaged store) is left out, and ``raw`` has its bytes as hex.
    """
    record = letter_record(letter)
    del record["key"], record["event"]
    text = json.dumps(record, ensure_ascii=False)[:-1]
    try:
        return f'{text}, "event": {to_json(letter.raw, canonical=True)}}}'
    except ValueError:
        return f'{text}, "raw": "{letter.raw.hex()}"}}'
