"""Dead letters as text for an operator: a table, or all details of one letter."""

import json
from collections.abc import Sequence
from datetime import datetime

from bson import json_util

from tailrace.cli.terminal_text import (
    CONTROL,
    UNKNOWN,
    age,
    columns,
    escaped,
    fields,
    printable,
)
from tailrace.engine.handle.replay import event_of, queues
from tailrace.event.extended_json import to_json
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.time_text import utc_text

_KEY, _ERROR = 40, 60


def table(letters: Sequence[DeadLetter], now: datetime) -> str:
    """One line for each letter, oldest first; times in UTC; counts at the end."""
    first_of, records = _queued(letters), [_record(letter, now) for letter in letters]
    for letter, record in zip(letters, records, strict=True):
        error, first = _short(record["error"], _ERROR), first_of.get(letter.identity)
        record["key"] = _short(record["key"], _KEY)
        record["error"] = f"(waits for {first}) {error}".rstrip() if first else error or UNKNOWN
    counts = number(len(letters))
    if first_of:
        counts += f", {len(first_of)} of them wait for another of the same document"
    headings = [name.upper() for name in records[0]]
    return f"{columns(headings, [[*record.values()] for record in records])}\n{counts}.\n"


def details(letter: DeadLetter, letters: Sequence[DeadLetter], now: datetime) -> str:
    """Every field on its own line, and the whole event; ``letters`` are all waiting letters."""
    record = _record(letter, now)
    record["at"] += f" ({record.pop('age')} ago)"
    error = record.pop("error") or UNKNOWN
    record |= {"waits for": _queued(letters).get(letter.identity, UNKNOWN), "error": error}
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


def summary(letter: DeadLetter) -> str:
    """A letter in one line."""
    return f"{letter.id}  {letter.scope}  {letter.handler}  {document_id(letter)}"


def number(count: int) -> str:
    """A count with its noun, such as "2 dead letters"."""
    return f"{count} dead letter{'' if count == 1 else 's'}"


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


def _queued(letters: Sequence[DeadLetter]) -> dict[tuple[str, str, str], str]:
    """For each letter that is not the first of its queue, the id of the first one."""
    return {
        letter.identity: queue[0].id for queue in queues(letters).values() for letter in queue[1:]
    }


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
