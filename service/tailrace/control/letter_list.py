"""Dead letters as JSON: a page, with no more events in memory than one."""

import hashlib
import json
from typing import Any

from anyio import to_thread
from bson import json_util

from tailrace.control.letter_choice import LetterChoice
from tailrace.engine.handle.letter_queues import event_of
from tailrace.engine.ports import DeadLetterStore
from tailrace.event.extended_json import to_json
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterUnreadable

_PAGE_BYTES = 4 * 1024 * 1024
"""A page ends with the event with which it has so many bytes."""

_LARGE_BYTES = 256 * 1024
"""An event of so many bytes is written in a thread: the event loop goes on."""


async def listed(
    store: DeadLetterStore, choice: LetterChoice, after: str, limit: int, *, events: bool
) -> str:
    """A page of the letters that wait, oldest first, as JSON, with their ``events`` or without.

    ``next``: the ``after`` for the next page. ``document`` is the same for all letters of a
    document. Raises as :meth:`LetterChoice.heads` does, and the errors of the store.
    """
    texts, size = list[str](), 0
    last, next = "", None
    async for head in choice.heads(store, after, limit + 1):
        if len(texts) == limit or size > _PAGE_BYTES:
            next = last
            break
        text = await _text(store, head, events=events)
        if text is not None:
            texts.append(text)
            size += len(text)
        last = head.arrival
    count = json.dumps({"count": await choice.count(store), "next": next})[:-1]
    return f'{count}, "letters": [{",".join(f"{chr(10)}  {text}" for text in texts)}\n]}}\n'


async def _text(store: DeadLetterStore, head: LetterHead, *, events: bool) -> str | None:
    """A dead letter; ``None`` if it does not wait any more."""
    letter: DeadLetter | None = None
    if events:
        try:
            letter = await store.read(head)
        except LetterUnreadable as error:
            return _with_event({**_fields(head), "key": None, "error": str(error)}, "null")
        if letter is None:
            return None
    event = event_of(letter) if letter is not None else None
    key = json_util.dumps(event.document_key) if event and event.document_key else None
    return _with_event({**_fields(head), "key": key}, await _event(letter))


async def _event(letter: DeadLetter | None) -> str:
    """The event as relaxed Extended JSON."""
    if letter is None:
        return "null"
    try:
        if len(letter.raw) < _LARGE_BYTES:
            return to_json(letter.raw, canonical=False)
        return await to_thread.run_sync(lambda: to_json(letter.raw, canonical=False))
    except ValueError:
        return "null"


def _fields(head: LetterHead) -> dict[str, Any]:
    return {
        **named(head),
        "key": None,
        "document": hashlib.sha256(head.key).hexdigest()[:12] if head.key else None,
        "error": head.error,
        "attempts": head.attempts,
        "at": head.at.isoformat(),
    }


def _with_event(fields: dict[str, Any], event: str) -> str:
    return f'{json.dumps(fields)[:-1]}, "event": {event}}}'


def named(letter: DeadLetter | LetterHead) -> dict[str, str]:
    """Which dead letter it is, in JSON types."""
    return {"id": letter.id, "scope": letter.scope, "handler": letter.handler}
