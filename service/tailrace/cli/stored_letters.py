"""The dead letters in the store: listed, shown and exported without a daemon."""

import argparse
import sys
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

import anyio

from tailrace.assembly import open_store
from tailrace.cli.arguments import read_settings
from tailrace.cli.dead_letter_text import details, row, table
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.settings import Settings
from tailrace.control.letter_choice import LetterChoice
from tailrace.engine.handle.letter_queues import in_order
from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import ConfigurationError, Problem
from tailrace.event.key import read_key
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterUnreadable
from tailrace.observe.terminal_text import printable
from tailrace.stores.records import letter_line

NONE = "No dead letters.\n"


def run(options: argparse.Namespace) -> int:
    """Prints the dead letters that are meant."""
    ids = [options.id] if options.verb == "show" else []
    key = read_key(options.key) if options.key is not None else None
    choice = LetterChoice(options.scope, options.handler, key, options.error, frozenset(ids))
    anyio.run(_print, options, read_settings(options), choice)
    return 0


async def _print(options: argparse.Namespace, settings: Settings, choice: LetterChoice) -> None:
    """Prints the dead letters that are meant, from the store."""
    async with open_store(settings) as opened:
        store = opened.dead_letters
        with waiting_bar("reading the dead letters", 30):
            if options.verb == "show":
                require_waiting([options.id], [head async for head in choice.heads(store)])
            match options.verb:
                case "list" | "show" if options.json:
                    lines = [letter_line(each) async for each in letters(store, choice)]
                    print(f"[{','.join(f'{chr(10)}  {line}' for line in lines)}\n]")
                case "list":
                    now = datetime.now(UTC)
                    rows = [row(each, now) async for each in letters(store, choice)]
                    print(table(rows) if rows else NONE, end="")
                case "show":
                    print(await show_letter(store, choice, now=datetime.now(UTC)), end="")
                case _:
                    async for letter in letters(store, choice):
                        print(letter_line(letter))


async def letters(store: DeadLetterStore, choice: LetterChoice) -> AsyncIterator[DeadLetter]:
    """The dead letters that are meant, one after another. Those that cannot be read are told."""
    async for head in choice.heads(store):
        try:
            if (letter := await store.read(head)) is not None:
                yield letter
        except LetterUnreadable as error:
            print(printable(str(error)), file=sys.stderr)


async def show_letter(store: DeadLetterStore, choice: LetterChoice, *, now: datetime) -> str:
    """Every field and the whole event of a letter, for each handler that could not handle it."""
    texts = list[str]()
    async for head in choice.heads(store):
        if (letter := await store.read(head)) is not None:
            queue = await in_order(store, await store.queue(head.queue))
            texts.append(details(letter, queue[0].id if queue else letter.id, now))
    return "\n".join(texts)


def require_waiting(ids: Collection[str], letters: Collection[LetterHead]) -> None:
    """Refuses ids that no dead letter has."""
    if unknown := set(ids) - {letter.id for letter in letters}:
        advice = "is not waiting; 'tailrace dead-letters list' shows those that are"
        problems = (f"dead letter {each!r}" for each in sorted(unknown))
        raise ConfigurationError(*(Problem(each, advice) for each in problems))
