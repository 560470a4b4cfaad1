"""What an operator does with dead letters: list, show, replay and discard them.

Each function takes an open store. What the operator got wrong is a
:class:`tailrace.errors.ConfigurationError`; a store that fails raises its own errors.

All but ``replay`` return the text to print. The daemon may run meanwhile: it goes on adding
letters behind those that are there, and hands a document's events to the handler again once its
last letter is resolved.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NoReturn, Protocol

from tailrace.dead_letters.record import How
from tailrace.dead_letters.text import details, document_id, number, table
from tailrace.errors import ConfigurationError, Problem
from tailrace.event.dead_letter import DeadLetter

NONE = "No dead letters.\n"


class LetterStore(Protocol):
    """What the command line asks of a store, beside :class:`engine.ports.DeadLetterStore`."""

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> list[DeadLetter]:
        """Unresolved letters, in the order in which they came."""

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes durably what became of a letter; says whether it was still waiting."""


async def list_letters(
    store: LetterStore, *, scope: str | None = None, handler: str | None = None, now: datetime
) -> str:
    """A table of the letters that wait, the oldest first, and how many there are."""
    letters = await store.letters(scope, handler)
    return table(letters, now) if letters else NONE


async def show_letter(
    store: LetterStore,
    letter: str,
    *,
    scope: str | None = None,
    handler: str | None = None,
    now: datetime,
) -> str:
    """Everything about a letter, its event whole; one text a handler where several have it."""
    letters = await store.letters(scope, handler)
    chosen = [each for each in letters if each.id == letter]
    if not chosen:
        refuse_unknown({letter})
    return "\n".join(details(each, letters, now) for each in chosen)


async def discard_letters(
    store: LetterStore,
    *,
    ids: Collection[str] = (),
    scope: str | None = None,
    handler: str | None = None,
    dry_run: bool = False,
) -> str:
    """Gives letters up for good: their events are never handled. Says which.

    ``ids`` and the other two narrow down; at least one of them is needed.
    """
    if not ids and scope is None and handler is None:
        refuse("", "say which letters: by their ids, --scope or --handler")
    chosen = select(await store.letters(scope, handler), ids)
    if not chosen:
        return NONE
    lines = []
    for letter in chosen:
        if dry_run or await store.resolve(letter, "discarded"):
            lines.append(f"{summary(letter)}\n")
    end = "Dry run: nothing was discarded" if dry_run else f"Discarded {number(len(lines))}"
    return f"{''.join(lines)}{end}.\n"


def select(letters: Collection[DeadLetter], ids: Collection[str]) -> list[DeadLetter]:
    """The letters with these ids, or all where there are none given.

    Raises :class:`ConfigurationError` for ids that no letter has.
    """
    if unknown := set(ids) - {letter.id for letter in letters}:
        refuse_unknown(unknown)
    return [letter for letter in letters if not ids or letter.id in ids]


def summary(letter: DeadLetter) -> str:
    """A letter in a line."""
    return f"{letter.id}  {letter.scope}  {letter.handler}  {document_id(letter)}"


def refuse(where: str, message: str) -> NoReturn:
    """What the operator asked for cannot be done."""
    raise ConfigurationError(Problem(where, message))


def refuse_unknown(letters: Collection[str]) -> NoReturn:
    """There are no letters of these ids."""
    raise ConfigurationError(
        *(
            Problem(
                f"letter {each!r}",
                "is not waiting; 'tailrace dead-letters list' shows those that are",
            )
            for each in sorted(letters)
        )
    )
