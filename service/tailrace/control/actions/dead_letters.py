"""Shows the dead letters that wait, replays and discards them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tailrace.control.action import Action
from tailrace.control.bodies import Body, Metavar
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.letter_choice import LetterChoice
    from tailrace.control.letters import DeadLetters


class LetterFilter(Body):
    scope: str | None = None
    """Only dead letters of this scope."""
    handler: str | None = None
    """Only dead letters of this handler."""
    key: Annotated[str | None, Metavar("JSON")] = None
    """Only those of the document with this `_id`, as Extended JSON."""
    error: Annotated[str | None, Metavar("TEXT")] = None
    """Only those whose error contains this text."""
    ids: list[str] = Field(default=[], max_length=1000)
    """Only those with these ids."""
    after: str = Field(default="", max_length=1000)
    """The `next` of the last answer: goes on where that ended."""


class LettersQuery(LetterFilter):
    """A page of the dead letters that wait, oldest first, with their events. If there are more,
    `next` is the `after` of the next page."""

    limit: int = Field(default=100, ge=1, le=1000)
    """At most so many, and fewer if their events are large; `count` is that of all."""
    events: bool = True
    """`false`: without their events and keys, which may be large."""


class LettersBody(LetterFilter):
    dry_run: bool = False
    """Only say what would be done."""


class ReplayLettersBody(LettersBody):
    """Hands the dead letters that are meant, and all others of their documents, to their handlers
    again, in order; without a filter, all. A handler that stores its own position gets a
    snapshot of their documents instead. If that takes longer than 8 seconds, `next` is the
    `after` to go on with."""


class DiscardLettersBody(LettersBody):
    """Removes the dead letters that are meant: their events are never handled. It needs a filter,
    and goes on as a replay does."""


class LetterBody(Body):
    scope: str | None = None
    """Only of this scope: the event may wait in several."""
    handler: str | None = None
    """Only of this handler: the event may wait for several."""


class ReplayLetterBody(LetterBody):
    """Hands a dead letter, and all others of its document, to its handler again, in order. If that
    takes longer than 8 seconds, `next` is the dead letter to ask for then."""


class DiscardLetterBody(LetterBody):
    """Removes a dead letter: its event is never handled."""


def _letters(control: Control) -> DeadLetters:
    from tailrace.control.letters import DeadLetters

    runtime = control.runtime
    return DeadLetters(control.supervisor, runtime.letters, runtime.desired_states, control.locks)


def _choice(body: LetterFilter) -> LetterChoice:
    from tailrace.control.letter_choice import LetterChoice
    from tailrace.event.key import read_key

    try:
        key = read_key(body.key) if body.key is not None else None
    except ValueError as error:
        raise ActionRefused(400, f"key: {error}") from error
    return LetterChoice(body.scope, body.handler, key, body.error, frozenset(body.ids))


def _one(id: str, body: LetterBody) -> LetterChoice:
    return _choice(LetterFilter(ids=[id], scope=body.scope, handler=body.handler))


async def _show(control: Control, _: str, query: LettersQuery, by: str) -> str:
    choice = _choice(query)
    return await _letters(control).show(choice, query.after, query.limit, events=query.events)


async def _replay(control: Control, _: str, body: LettersBody, by: str) -> Done:
    choice, dry_run = _choice(body), body.dry_run
    return await _letters(control).replay(choice, by, body.after, dry_run=dry_run)


async def _discard(control: Control, _: str, body: LettersBody, by: str) -> Done:
    if not body.model_fields_set & {"scope", "handler", "key", "error", "ids"}:
        raise ActionRefused(400, "say which: give scope, handler, key, error or ids")
    return await _letters(control).discard(_choice(body), body.after, dry_run=body.dry_run)


async def _replay_one(control: Control, id: str, body: LetterBody, by: str) -> Done:
    return await _letters(control).replay_one(_one(id, body), by)


async def _discard_one(control: Control, id: str, body: LetterBody, by: str) -> Done:
    return await _letters(control).discard_one(id, _one(id, body))


SHOW = Action("GET", "/dead-letters", LettersQuery, _show)
REPLAY = Action("POST", "/dead-letters/replay", ReplayLettersBody, _replay)
DISCARD = Action("POST", "/dead-letters/discard", DiscardLettersBody, _discard)
REPLAY_ONE = Action("POST", "/dead-letters/{id}/replay", ReplayLetterBody, _replay_one)
DISCARD_ONE = Action("POST", "/dead-letters/{id}/discard", DiscardLetterBody, _discard_one)
