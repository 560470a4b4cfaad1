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
from tailrace.cli.arguments import add_json, client_of, result_text, scope_of
from tailrace.cli.scope_server import scope_server
from tailrace.cli.terminal_text import UNKNOWN, columns
from tailrace.config import Settings
from tailrace.config.store import MemoryStoreSettings
from tailrace.control.bodies import SeekBody
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
    verbs.add_parser("restart", help="restart a halted scope from its checkpoint")
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
    positions = verbs.add_parser("positions", help="where a scope is and was, the latest first")
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
    for verb in VERBS:
        verbs.choices[verb].add_argument("scope", help="the scope's name")


async def answer(options: argparse.Namespace, settings: Settings) -> str:
    """Does what the verb says; returns what was done."""
    scope_of(options.scope, settings, options.config)
    if options.verb == "replay":
        return await scope_replay.answer(options, settings)
    client, name = client_of(settings, options.config), options.scope
    try:
        if options.verb == "positions":
            return _shown(options, client.get(f"/scopes/{quote(name, safe='')}/positions"))
        body = _seek(options).model_dump(exclude_none=True) if options.verb == "seek" else {}
        if options.verb == "skip":
            body = {"dry_run": options.dry_run}
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
        if options.verb == "positions":
            return _shown(options, await positions_of(name, store.checkpoints, store.orders))
        if options.verb == "seek":
            return result_text(options, await _moved(_seek(options), settings, store, name))
        if options.verb == "skip":
            return result_text(options, await _skipped(options.dry_run, settings, store, name))
        paused = options.verb == "pause"
        given = await give(store.orders, name, operator(), {"paused": paused})
    message = f"scope {name!r} is {'paused' if paused else 'resumed'}: {_STORED}"
    if given.repeated:
        message = f"scope {name!r} {'is paused already' if paused else 'was not paused'}"
    return result_text(options, {"message": message, "state": None})


def _seek(options: argparse.Namespace) -> SeekBody:
    return SeekBody.model_validate(
        {name: getattr(options, name) for name in ("at", "token", "undo", "dry_run")}
    )


async def _moved(body: SeekBody, settings: Settings, store: Store, name: str) -> Mapping[str, Any]:
    scope = next(each for each in settings.scopes if each.name == name)
    handlers = [each for route in settings.routes if route.scope == name for each in route.handlers]
    async with scope_server(settings, scope) as server:
        handlers = list(dict.fromkeys(handlers))
        seeking = Seeking(server, handlers, store.checkpoints, store.orders)
        sought = await seeking.find(body)
    details = {**sought.details, "dry_run": body.dry_run}
    if body.dry_run:
        return {
            "message": f"scope {name!r}: {sought.effect}. Dry run: nothing was changed",
            **details,
        }
    await give(store.orders, name, operator(), sought.order)
    message = f"scope {name!r}: {sought.effect}. {_STORED[0].upper()}{_STORED[1:]}"
    return {"message": message, **details, "state": None}


async def _skipped(dry_run: bool, settings: Settings, store: Store, name: str) -> Mapping[str, Any]:
    scope = next(each for each in settings.scopes if each.name == name)
    async with scope_server(settings, scope) as server:
        found = await find_unsendable(server, store.checkpoints)
    done = found.done("" if dry_run else f"scope {name!r}: {_STORED}")
    if not dry_run:
        await give(store.orders, name, operator(), found.order)
    return {"message": done.message, **done.details}


def _shown(options: argparse.Namespace, found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=2) + "\n" if options.json else _table(found)


def _table(found: Mapping[str, Any]) -> str:
    rows = [
        (each["at"] or UNKNOWN, each["saved_at"][:19] + "Z", each["token"] or UNKNOWN)
        for each in found["positions"]
    ]
    if not rows:
        return f"No positions of scope {found['scope']!r} are kept.\n"
    return columns(("CLUSTER TIME", "SAVED", "TOKEN"), rows)
