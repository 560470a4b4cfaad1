"""``tailrace dead-letters``: the events that handlers could not handle.

``replay`` and ``discard`` ask the daemon on this machine, which uses its open handlers and goes on
meanwhile. Of two at once, the second is refused. The other verbs read the store.

Exit codes: 0 done, 1 a replayed letter failed again, or it was refused, or no daemon runs, 2 usage
or configuration, 130 interrupted.
"""

import argparse
import sys
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

import anyio

from tailrace.assembly import open_store
from tailrace.cli.action_command import add_options
from tailrace.cli.arguments import add_config, add_json, client_of, read_settings, refuse
from tailrace.cli.dead_letter_text import details, row, table
from tailrace.cli.dead_letters_daemon import through_daemon
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config.settings import Settings
from tailrace.control.actions.dead_letters import LetterFilter
from tailrace.control.letter_choice import LetterChoice
from tailrace.engine.handle.letter_queues import in_order
from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import ConfigurationError, Problem
from tailrace.event.key import read_key
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterUnreadable
from tailrace.observe.terminal_text import printable
from tailrace.stores.records import letter_line

NONE = "No dead letters.\n"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="the waiting dead letters, oldest first")
    show = verbs.add_parser("show", help="one dead letter with its whole event")
    show.add_argument("id", help="the dead letter's id, as list shows it")
    for verb in (listed, show):
        verb.add_argument("--json", action="store_true", help="print a JSON array, with events")
    verbs.add_parser("export", help="one line of JSON per dead letter, for grep and jq")
    replay = verbs.add_parser(
        "replay", help="through the daemon: deliver them to their handlers again, in order"
    )
    discard = verbs.add_parser(
        "discard", help="through the daemon: delete them, so that their events are never handled"
    )
    for verb, otherwise in (
        (replay, "default: all, or those that the options choose"),
        (discard, "without ids: those that the options choose, one of which is needed"),
    ):
        verb.add_argument("id", nargs="*", help=f"ids of dead letters; {otherwise}")
        verb.add_argument("--dry-run", action="store_true", help="say what would happen")
        add_json(verb)
    for verb in verbs.choices.values():
        add_options(verb, LetterFilter, ("ids", "after"))
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb; returns the exit code."""
    settings, choice = read_settings(options), _choice(options)
    if options.verb in ("replay", "discard"):
        _require_choice(options, settings)
        return through_daemon(client_of(settings, options.config), options)
    anyio.run(_print, options, settings, choice)
    return 0


async def _print(options: argparse.Namespace, settings: Settings, choice: LetterChoice) -> None:
    """Prints the letters that are meant, from the store."""
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


def _choice(options: argparse.Namespace) -> LetterChoice:
    ids = [options.id] if options.verb == "show" else getattr(options, "id", [])
    try:
        key = read_key(options.key) if options.key is not None else None
    except ValueError as error:
        refuse("--key", str(error))
    return LetterChoice(options.scope, options.handler, key, options.error, frozenset(ids))


async def letters(store: DeadLetterStore, choice: LetterChoice) -> AsyncIterator[DeadLetter]:
    """The letters that are meant, one after another. Those that cannot be read are told."""
    async for head in choice.heads(store):
        try:
            if (letter := await store.read(head)) is not None:
                yield letter
        except LetterUnreadable as error:
            print(printable(str(error)), file=sys.stderr)


def _require_choice(options: argparse.Namespace, settings: Settings) -> None:
    """Refuses a replay to an unknown handler, and a discard of nothing in particular."""
    said = (options.id, options.scope, options.handler, options.key, options.error)
    if options.verb == "discard" and not any(said):
        refuse("", "say which dead letters: by their ids, --scope, --handler, --key or --error")
    if options.verb == "replay" and options.handler not in (None, *settings.handlers):
        refuse(f"handler {options.handler!r}", "is not in the configuration")


async def show_letter(store: DeadLetterStore, choice: LetterChoice, *, now: datetime) -> str:
    """Every field and the whole event of a letter, for each handler that could not handle it."""
    texts = list[str]()
    async for head in choice.heads(store):
        if (letter := await store.read(head)) is not None:
            queue = await in_order(store, await store.queue(head.queue))
            texts.append(details(letter, queue[0].id if queue else letter.id, now))
    return "\n".join(texts)


def require_waiting(ids: Collection[str], letters: Collection[LetterHead]) -> None:
    """Refuses ids that no letter has."""
    if unknown := set(ids) - {letter.id for letter in letters}:
        advice = "is not waiting; 'tailrace dead-letters list' shows those that are"
        problems = (f"dead letter {each!r}" for each in sorted(unknown))
        raise ConfigurationError(*(Problem(each, advice) for each in problems))
