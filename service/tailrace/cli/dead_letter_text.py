"""Dead letters as text for an operator: a table, or all details of one letter."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bson import json_util

from tailrace.cli.dead_letters_daemon import number
from tailrace.engine.handle.letter_queues import event_of
from tailrace.event.extended_json import to_json
from tailrace.model.dead_letter import DeadLetter, LetterQueue
from tailrace.model.time_text import utc_text
from tailrace.observe.terminal_text import (
    CONTROL,
    UNKNOWN,
    age,
    columns,
    escaped,
    fields,
    printable,
)

_KEY, _ERROR = 40, 60


@dataclass(frozen=True, slots=True)
class Row:
    """A dead letter in a table. ``id`` and ``queue`` are those of the letter."""

    id: str
    queue: LetterQueue
    fields: dict[str, str]


def row(letter: DeadLetter, now: datetime) -> Row:
    """The row of a dead letter, without its event."""
    return Row(letter.id, (letter.scope, letter.handler, letter.key), _record(letter, now))


def table(rows: Sequence[Row]) -> str:
    """One line for each dead letter, oldest first; times in UTC; counts at the end."""
    first, records, waiting = dict[LetterQueue, str](), list[dict[str, str]](), 0
    for row in rows:
        ahead = first.setdefault(row.queue, row.id)
        waits = f"(waits for {ahead}) " if ahead != row.id else ""
        waiting += bool(waits)
        error = f"{waits}{_short(row.fields['error'], _ERROR)}".rstrip() or UNKNOWN
        records.append(row.fields | {"key": _short(row.fields["key"], _KEY), "error": error})
    counts = number(len(rows))
    if waiting:
        counts += f", {waiting} of them wait for another of the same document"
    headings = [name.upper() for name in records[0]]
    return f"{columns(headings, [[*record.values()] for record in records])}\n{counts}.\n"


def details(letter: DeadLetter, first: str, now: datetime) -> str:
    """Every field on its own line, and the whole event; ``first``: the id before which none of its
    document is replayed."""
    record = _record(letter, now)
    record["at"] += f" ({record.pop('age')} ago)"
    error = record.pop("error") or UNKNOWN
    record |= {"waits for": first if first != letter.id else UNKNOWN, "error": error}
    head = fields(record.items())
    try:
        event = json.loads(to_json(letter.raw, canonical=True))
    except ValueError as error:
        return f"{head}  event:        (unreadable: {printable(str(error))}) {letter.raw.hex()}\n"
    lines = json.dumps(event, indent=2, ensure_ascii=False).split("\n")
    return f"{head}  event:\n" + "".join(f"{CONTROL.sub(escaped, line)}\n" for line in lines)


def document_id(letter: DeadLetter) -> str:
    """The ``_id`` of the changed document, as relaxed Extended JSON."""
    event = event_of(letter)
    key = event.document_key if event else None
    if not key or "_id" not in key:
        return UNKNOWN
    return printable(json_util.dumps(key["_id"], ensure_ascii=False))


def _record(letter: DeadLetter, now: datetime) -> dict[str, str]:
    event = event_of(letter)
    return {
        "letter": letter.id,
        "scope": letter.scope,
        "handler": letter.handler,
        "operation": (printable(event.operation_type) or UNKNOWN) if event else "(unreadable)",
        "namespace": printable(str(event.ns or UNKNOWN)) if event else UNKNOWN,
        "key": document_id(letter),
        "attempts": str(letter.attempts),
        "at": utc_text(letter.at),
        "age": age(now - letter.at),
        "error": printable(letter.error),
    }


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
