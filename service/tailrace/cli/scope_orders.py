"""The verbs of ``tailrace scopes`` that the daemon on this machine answers.

Where none runs, an order is stored, and the process that follows the scope obeys it: at once, or
when it starts.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tailrace.assembly import open_store
from tailrace.cli import scope_replay
from tailrace.cli.arguments import (
    add_json,
    client_of,
    handlers_of,
    require_handler,
    result_text,
    scope_of,
)
from tailrace.cli.scope_server import scope_server
from tailrace.cli.terminal_text import UNKNOWN, columns
from tailrace.config.settings import Settings
from tailrace.config.store import MemoryStoreSettings
from tailrace.control.actions.seek import SeekBody
from tailrace.control.client import NoDaemon, operator
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused
from tailrace.control.seeking import Seeking, positions_of
from tailrace.control.skipping import find_unsendable
from tailrace.stores import Store

VERBS = ("restart", "pause", "resume", "seek", "skip", "replay", "positions")

_STORED = "no daemon runs here: stored; the process that follows it obeys now, or when it starts"


def add(verbs: Any) -> None:
    """Adds the verbs to ``tailrace scopes``."""
    verbs.add_parser("restart", help="restart what is halted from its checkpoint")
    verbs.add_parser("pause", help="drain and save a scope, and read nothing until it is resumed")
    verbs.add_parser("resume", help="let a paused scope continue")
    seek = verbs.add_parser("seek", help="let a scope continue at another position")
    seek.add_argument("--at", metavar="TIME", help="ISO 8601 with offset: from that second on")
    seek.add_argument("--token", metavar="JSON", help="after this resume token")
    seek.add_argument("--undo", action="store_true", help="where it was before its last seek")
    seek.add_argument(
        "--dry-run", action="store_true", help="say what would come again or be skipped"
    )
    skip = verbs.add_parser("skip", help="set one change aside that the server cannot send")
    skip.add_argument("--dry-run", action="store_true", help="say which change that is")
    scope_replay.add(verbs.add_parser("replay", help="hand a span of time to one handler again"))
    positions = verbs.add_parser("positions", help="where handlers are and were, the latest first")
    positions.add_argument("--json", action="store_true", help="print them as JSON")
    for verb in ("restart", "pause", "resume", "seek", "skip"):
        verbs.choices[verb].add_argument(
            "--wait",
            type=float,
            metavar="SECONDS",
            help="wait for the effect, up to 300 s; exit code 1 if it has not come",
        )
    for verb in ("restart", "pause", "resume", "seek", "skip", "replay"):
        add_json(verbs.choices[verb])
    for verb in ("restart", "pause", "resume", "seek", "skip", "positions"):
        verbs.choices[verb].add_argument(
            "--handler", metavar="NAME", help="only this handler of the scope"
        )
    for verb in VERBS:
        verbs.choices[verb].add_argument("scope", help="the scope's name")


async def answer(options: argparse.Namespace, settings: Settings) -> str:
    """Does what the verb says; returns what was done."""
    scope_of(options.scope, settings, options.config)
    if options.verb == "replay":
        return await scope_replay.answer(options, settings)
    client, name, handler = client_of(settings, options.config), options.scope, options.handler
    require_handler(handler, name, settings)
    try:
        if options.verb == "positions":
            path = f"/scopes/{quote(name, safe='')}/positions"
            return _shown(options, client.get(path, handler=handler))
        body = _seek(options).model_dump(exclude_none=True) if options.verb == "seek" else {}
        if options.verb == "skip":
            body = {"dry_run": options.dry_run}
        if handler is not None:
            body["handler"] = handler
        if options.wait is not None:
            body["wait"] = options.wait
        done = client.scope(name, options.verb, body, (options.wait or 0.0) + 60)
        if options.wait is not None and done.get("effective") is False:
            raise ActionRefused(409, done["message"])
        return result_text(options, done)
    except NoDaemon:
        if options.verb == "restart" or isinstance(settings.store, MemoryStoreSettings):
            raise
    async with open_store(settings) as store:
        match options.verb:
            case "positions":
                records = store.checkpoints, store.orders
                return _shown(options, await positions_of(name, *records, handler))
            case "seek":
                return result_text(options, await _moved(options, settings, store))
            case "skip":
                return result_text(options, await _skipped(options, settings, store))
        paused = options.verb == "pause"
        given = await give(store.orders, name, operator(), {"paused": paused}, handler)
    subject = _subject(options)
    message = f"{subject} is {'paused' if paused else 'resumed'}: {_STORED}"
    if given.repeated:
        message = f"{subject} {'is paused already' if paused else 'was not paused'}"
    return result_text(options, {"message": message, "state": None})


def _subject(options: argparse.Namespace) -> str:
    scope = f"scope {options.scope!r}"
    return scope if options.handler is None else f"handler {options.handler!r} of {scope}"


def _seek(options: argparse.Namespace) -> SeekBody:
    return SeekBody.model_validate(
        {name: getattr(options, name) for name in ("at", "token", "undo", "dry_run")}
    )


async def _moved(
    options: argparse.Namespace, settings: Settings, store: Store
) -> Mapping[str, Any]:
    body, handler, subject = _seek(options), options.handler, _subject(options)
    scope = scope_of(options.scope, settings, options.config)
    handlers = handlers_of(scope.name, settings) if handler is None else [handler]
    async with scope_server(settings, scope) as server:
        seeking = Seeking(server, handlers, store.checkpoints, store.orders, alone=handler)
        sought = await seeking.find(at=body.at, token=body.token, undo=body.undo)
    details = {**sought.details, "dry_run": body.dry_run}
    if body.dry_run:
        return {"message": f"{subject}: {sought.effect}. Dry run: nothing was changed", **details}
    await give(store.orders, scope.name, operator(), sought.order, handler)
    message = f"{subject}: {sought.effect}. {_STORED[0].upper()}{_STORED[1:]}"
    return {"message": message, **details, "state": None}


async def _skipped(
    options: argparse.Namespace, settings: Settings, store: Store
) -> Mapping[str, Any]:
    scope = scope_of(options.scope, settings, options.config)
    async with scope_server(settings, scope) as server:
        found = await find_unsendable(server, store.checkpoints, options.handler)
    done = found.done("" if options.dry_run else f"{_subject(options)}: {_STORED}")
    if not options.dry_run:
        await give(store.orders, scope.name, operator(), found.order, options.handler)
    return {"message": done.message, **done.details}


def _shown(options: argparse.Namespace, found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=2) + "\n" if options.json else _table(found)


def _table(found: Mapping[str, Any]) -> str:
    rows = [
        (
            each["at"] or UNKNOWN,
            ", ".join(each["handlers"]) or UNKNOWN,
            each["saved_at"][:19] + "Z",
            each["token"] or UNKNOWN,
        )
        for each in found["positions"]
    ]
    lost = "".join(
        f"The position of handler {name!r} cannot be read: choose one with 'tailrace scopes seek "
        f"{found['scope']} --handler {name} --at TIME'\n"
        for name in found["unreadable"]
    )
    if not rows:
        return f"No positions of scope {found['scope']!r} are kept.\n{lost}"
    return columns(("CLUSTER TIME", "HANDLERS", "SAVED", "TOKEN"), rows) + lost
