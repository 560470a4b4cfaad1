"""``tailrace dead-letters``: the events that handlers could not handle.

``replay`` and ``discard`` ask the daemon on this machine, which uses its open handlers and goes on
meanwhile. Where none runs, they hold the scopes' leases and work on the store. Of two at once, the
second is refused. The other verbs read the store.

Exit codes: 0 done, 1 a replayed letter failed again, or it was refused, or the lease was lost,
2 usage or configuration, 130 and 143 interrupted by SIGINT or SIGTERM.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from secrets import token_hex

import anyio
from prometheus_client import CollectorRegistry

from tailrace.assembly import open_store, target
from tailrace.cli.arguments import (
    add_config,
    add_json,
    client_of,
    read_settings,
    refuse,
    result_text,
)
from tailrace.cli.dead_letter_text import details, number, row, summary, table
from tailrace.cli.dead_letters_daemon import through_daemon
from tailrace.cli.scopes import followers
from tailrace.cli.terminal_text import printable
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.config import Settings
from tailrace.config.store import MemoryStoreSettings
from tailrace.control.client import NoDaemon
from tailrace.control.letter_choice import LetterChoice
from tailrace.control.letter_list import named
from tailrace.engine.handle.replay import in_order, refusal, replay_letters
from tailrace.engine.ports import DeadLetterStore, Handler
from tailrace.errors import CheckpointCorrupt, ConfigurationError, Problem
from tailrace.model import Scope
from tailrace.model.dead_letter import DeadLetter, LetterHead, LetterUnreadable
from tailrace.replicas.command_leases import CommandLeases
from tailrace.replicas.times import LeaseTimes
from tailrace.stores import Store
from tailrace.stores.records import letter_line
from tailrace.why.key import read_key

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
    replay = verbs.add_parser("replay", help="deliver them to their handlers again, in order")
    discard = verbs.add_parser("discard", help="delete them: their events are never handled")
    for verb, otherwise in (
        (replay, "default: all, or those that the options choose"),
        (discard, "without ids: those that the options choose, one of which is needed"),
    ):
        verb.add_argument("id", nargs="*", help=f"ids of dead letters; {otherwise}")
        verb.add_argument("--dry-run", action="store_true", help="say what would happen")
        add_json(verb)
    for verb in verbs.choices.values():
        verb.add_argument("--scope", help="only dead letters of this scope")
        verb.add_argument("--handler", help="only dead letters of this handler")
        verb.add_argument("--key", metavar="JSON", help="only of the document with this _id")
        verb.add_argument("--error", metavar="TEXT", help="only those whose error contains this")
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb; returns the exit code."""
    return anyio.run(_ask, options)


async def _ask(options: argparse.Namespace) -> int:
    settings, choice = read_settings(options), _choice(options)
    if options.verb in ("replay", "discard"):
        _require_choice(options, settings)
        try:
            return through_daemon(client_of(settings, options.config), options)
        except NoDaemon:
            if isinstance(settings.store, MemoryStoreSettings):
                raise
    async with open_store(settings) as opened:
        store = opened.dead_letters
        if options.verb in ("replay", "discard"):
            chosen = [head async for head in choice.heads(store)]
            require_waiting(options.id, chosen)
            act = _replay if options.verb == "replay" else _discard
            return await act(options, settings, opened, chosen)
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
    return 0


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


async def _discard(
    options: argparse.Namespace, settings: Settings, opened: Store, chosen: Sequence[LetterHead]
) -> int:
    scopes = {letter.scope for letter in chosen}
    if not options.json:
        print(await followers(opened, settings, scopes), end="")
    gone, end = chosen, "Dry run: nothing was discarded."
    if not options.dry_run:
        if chosen:  # with the leases, or a replay could deliver one that is discarded meanwhile
            discard = partial(discard_letters, opened.dead_letters, chosen)
            gone = await _leases(settings, opened, scopes).run(discard)
        end = f"Discarded {number(len(gone))}."
    text = "".join(f"{summary(letter)}\n" for letter in gone) + end if chosen else NONE.rstrip()
    done = 0 if options.dry_run else len(gone)
    outcome = "would be discarded" if options.dry_run else "discarded"
    reported = [named(letter) | {"outcome": outcome} for letter in gone]
    answer = {"message": text, "done": done, "failed": 0, "letters": reported}
    print(result_text(options, answer), end="")
    return 0


async def _replay(
    options: argparse.Namespace, settings: Settings, opened: Store, chosen: Sequence[LetterHead]
) -> int:
    from tailrace.handlers.pool import HandlerPlan, handler_pool

    store = opened.dead_letters
    if not chosen:
        print(result_text(options, {"message": NONE.rstrip(), "letters": []}), end="")
        return 0
    known, follows = {each.name: target(each) for each in settings.scopes}, dict[str, list[Scope]]()
    for scope, name in sorted({(letter.scope, letter.handler) for letter in chosen}):
        follows.setdefault(name, []).append(known.get(scope, Scope(scope)))
    require_configured(follows, settings.handlers)
    plans = [HandlerPlan.of(name, settings.handlers[name], of) for name, of in follows.items()]
    scopes = {letter.scope for letter in chosen}
    reported: list[dict[str, str]] = []

    def report(letter: DeadLetter | LetterHead, what: str) -> None:
        reported.append(named(letter) | {"outcome": what})
        bar.share = min(len(reported) / len(chosen), 1.0)
        if not options.json:
            bar.print(f"{summary(letter)}  {printable(what)}")

    if not options.json:
        print(await followers(opened, settings, scopes), end="")
    async with handler_pool(CollectorRegistry()) as pool:
        usable = await pool.add(plans, settings.delivery)
        handlers = {key: each.handler(settings.delivery) for key, each in usable.items()}
        if options.dry_run:
            would = await would_replay(store, chosen, handlers)
            print(result_text(options, {"message": would.rstrip(), "dry_run": True}), end="")
            return 0
        epochs = {scope: await _epoch(opened, scope) for scope in scopes}
        leases = _leases(settings, opened, scopes)
        replay = partial(replay_letters, store, handlers, chosen, report, epochs, leases.require)
        with anyio.CancelScope() as running:  # SIGINT cancels the task (asyncio.Runner)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
            with waiting_bar("replaying", 600) as bar:
                done = await leases.run(replay)
        if running.cancelled_caught:
            return 128 + signal.SIGTERM
    message = f"Replayed {number(done.replayed)}; {done.failed} failed again, {done.left} left."
    if done.left > done.failed:
        message += (
            "\nDead letters that are left wait for one of the same document, or were added "
            "meanwhile. Fix the handler or discard those that fail, then replay again."
        )
    counts = {"done": done.replayed, "failed": done.failed, "left": done.left}
    print(result_text(options, {"message": message, **counts, "letters": reported}), end="")
    return 1 if done.failed else 0


def _require_choice(options: argparse.Namespace, settings: Settings) -> None:
    """Refuses a replay to an unknown handler, and a discard of nothing in particular."""
    said = (options.id, options.scope, options.handler, options.key, options.error)
    if options.verb == "discard" and not any(said):
        refuse("", "say which dead letters: by their ids, --scope, --handler, --key or --error")
    if options.verb == "replay" and options.handler not in (None, *settings.handlers):
        refuse(f"handler {options.handler!r}", "is not in the configuration")


def _leases(settings: Settings, opened: Store, scopes: Collection[str]) -> CommandLeases:
    owner = f"process {os.getpid()} on {socket.gethostname()}/{token_hex(4)}"
    times = LeaseTimes(settings.replicas.lease_seconds) if settings.replicas else LeaseTimes()
    return CommandLeases(opened.leases, scopes, owner, times)


async def _epoch(opened: Store, scope: str) -> int:
    """The epoch of the scope's current owner; 0 if it cannot be read."""
    with suppress(CheckpointCorrupt):
        if (found := await opened.checkpoints.load(scope)) is not None:
            return found.epoch
    return 0


async def show_letter(store: DeadLetterStore, choice: LetterChoice, *, now: datetime) -> str:
    """Every field and the whole event of a letter, for each handler that could not handle it."""
    texts = list[str]()
    async for head in choice.heads(store):
        if (letter := await store.read(head)) is not None:
            queue = await in_order(store, await store.queue(head.queue))
            texts.append(details(letter, queue[0].id if queue else letter.id, now))
    return "\n".join(texts)


async def discard_letters(
    store: DeadLetterStore, chosen: Sequence[LetterHead]
) -> Sequence[LetterHead]:
    """Removes letters, so that their events are never handled; returns those that waited."""
    return [letter for letter in chosen if await store.resolve(letter, "discarded")]


async def would_replay(
    store: DeadLetterStore,
    chosen: Collection[LetterHead],
    handlers: Mapping[tuple[str, str], Handler],
) -> str:
    """The letters that ``replay`` would replay: the whole queues of the chosen ones, in order."""
    lines, count = [], 0
    for name in dict.fromkeys(head.queue for head in chosen):
        reason = refusal(handlers[name[:2]])
        outcome = f"would be refused: {reason}" if reason else "would be replayed"
        queue = await in_order(store, await store.queue(name))
        lines += [f"{summary(head)}  {outcome}\n" for head in queue]
        count += 0 if reason else len(queue)
    return f"{''.join(lines)}Dry run: {number(count)} would be replayed, none was.\n"


def require_configured(names: Collection[str], known: Collection[str]) -> None:
    """Raises :class:`ConfigurationError` for handlers with letters that are not configured."""
    advice = (
        "has dead letters and is not in the configuration: add it again, discard them, or choose "
        "others with --handler"
    )
    if missing := sorted(set(names) - set(known)):
        raise ConfigurationError(*(Problem(f"handler {name!r}", advice) for name in missing))


def require_waiting(ids: Collection[str], letters: Collection[LetterHead]) -> None:
    """Refuses ids that no letter has."""
    if unknown := set(ids) - {letter.id for letter in letters}:
        advice = "is not waiting; 'tailrace dead-letters list' shows those that are"
        problems = (f"dead letter {each!r}" for each in sorted(unknown))
        raise ConfigurationError(*(Problem(each, advice) for each in problems))
