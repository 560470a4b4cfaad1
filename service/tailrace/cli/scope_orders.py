"""``tailrace scopes pause | resume | seek | replay | positions``: asks the daemon on this machine.

Where none runs, an order is stored, and the process that follows the scope obeys it: at once, or
when it starts. A replay needs the daemon, whose handlers are open.
"""

import argparse
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import anyio

from tailrace.assembly import open_store, stream_options, target
from tailrace.cli.arguments import client_of, scope_of
from tailrace.cli.terminal_text import UNKNOWN, columns
from tailrace.config import Settings
from tailrace.config.store import MemoryStoreSettings
from tailrace.control.bodies import SeekBody
from tailrace.control.client import Client, NoDaemon, operator
from tailrace.control.control import positions_of
from tailrace.control.orders import give
from tailrace.control.outcome import ActionRefused
from tailrace.control.seeking import Seeking
from tailrace.drivers import DRIVERS
from tailrace.stores import Store

_LOOK_SECONDS = 0.2

VERBS = ("pause", "resume", "seek", "replay", "positions")

_STORED = "no daemon runs here: stored; the process that follows it obeys now, or when it starts"


def add(verbs: Any) -> None:
    """Adds the verbs to ``tailrace scopes``."""
    verbs.add_parser("pause", help="drain and save a scope, and read nothing until it is resumed")
    verbs.add_parser("resume", help="let a paused scope continue")
    seek = verbs.add_parser("seek", help="let a scope continue at another position")
    seek.add_argument("--at", metavar="TIME", help="ISO 8601 with offset: from that second on")
    seek.add_argument("--token", metavar="JSON", help="after this resume token")
    seek.add_argument("--undo", action="store_true", help="where it was before its last seek")
    seek.add_argument(
        "--dry-run", action="store_true", help="say what would come again or be skipped"
    )
    replay = verbs.add_parser("replay", help="hand a span of time to one handler again")
    replay.add_argument("--from", dest="since", metavar="TIME", help="ISO 8601 with offset")
    replay.add_argument("--to", metavar="TIME", help="ISO 8601 with offset; default: now")
    replay.add_argument("--handler", help="the handler that gets the changes")
    replay.add_argument("--collection", action="append", default=[], metavar="NAME")
    replay.add_argument("--dry-run", action="store_true", help="say what would be replayed")
    replay.add_argument("--cancel", action="store_true", help="end the replay that is running")
    positions = verbs.add_parser("positions", help="where a scope is and was, the latest first")
    positions.add_argument("--json", action="store_true", help="print them as JSON")
    for verb in VERBS:
        verbs.choices[verb].add_argument("scope", help="the scope's name")


async def answer(options: argparse.Namespace, settings: Settings) -> str:
    """Does what the verb says; returns what was done."""
    scope_of(options.scope, settings, options.config)
    client, name = client_of(settings, options.config), options.scope
    try:
        if options.verb == "positions":
            return _shown(options, client.get(f"/scopes/{quote(name, safe='')}/positions"))
        if options.verb == "replay":
            return await _replay(client, options)
        body = _seek(options).model_dump() if options.verb == "seek" else {}
        return f"{client.scope(name, options.verb, body)['message']}\n"
    except NoDaemon:
        if options.verb == "replay" or isinstance(settings.store, MemoryStoreSettings):
            raise
    async with open_store(settings) as store:
        if options.verb == "positions":
            return _shown(options, await positions_of(name, store.checkpoints, store.orders))
        if options.verb == "seek":
            return await _moved(_seek(options), settings, store, name)
        paused = options.verb == "pause"
        given = await give(store.orders, name, operator(), {"paused": paused})
    word = "paused" if paused else "resumed"
    told = f"it was {word} already" if given.repeated else _STORED
    return f"scope {name!r} is {word}: {told}\n"


async def _replay(client: Client, options: argparse.Namespace) -> str:
    """Asks for a replay, and waits for its end."""
    body = {"from": options.since, "to": options.to, "handler": options.handler}
    body |= {"collections": options.collection, "dry_run": options.dry_run}
    begun = client.scope(options.scope, "replay", {**body, "cancel": options.cancel})
    if options.dry_run or options.cancel:
        return f"{begun['message']}\n"
    path = f"/scopes/{quote(options.scope, safe='')}/replay"
    while (found := client.get(path)["replay"])["state"] == "running":  # noqa: ASYNC110 - remote
        await anyio.sleep(_LOOK_SECONDS)
    told = f"the replay is {found['state']}: {found['handled']} changes were handed over"
    if found["state"] != "done":
        raise ActionRefused(409, f"{told}; {found['reason']}".rstrip("; "))
    return f"scope {options.scope!r}: {told}\n"


def _seek(options: argparse.Namespace) -> SeekBody:
    return SeekBody(at=options.at, token=options.token, undo=options.undo, dry_run=options.dry_run)


async def _moved(body: SeekBody, settings: Settings, store: Store, name: str) -> str:
    scope = next(each for each in settings.scopes if each.name == name)
    handlers = [each for route in settings.routes if route.scope == name for each in route.handlers]
    async with AsyncExitStack() as stack:
        factory, uri = DRIVERS[settings.mongodb.driver], settings.mongodb.uri.get_secret_value()
        driver = await stack.enter_async_context(factory(uri, 1))
        seeking = Seeking(
            target(scope),
            stream_options(scope),
            list(dict.fromkeys(handlers)),
            store.checkpoints,
            store.orders,
            driver,
            lambda: None,
            driver,
        )
        sought = await seeking.find(body)
    if body.dry_run:
        return f"scope {name!r}: {sought.effect}. Dry run: nothing was changed\n"
    await give(store.orders, name, operator(), sought.order)
    return f"scope {name!r}: {sought.effect}. {_STORED[0].upper()}{_STORED[1:]}\n"


def _shown(options: argparse.Namespace, found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=2) + "\n" if options.json else _table(found)


def _table(found: Mapping[str, Any]) -> str:
    rows = [
        (each["at"] or UNKNOWN, each["saved_at"][:19] + "Z", json.dumps(each["token"]) or UNKNOWN)
        for each in found["positions"]
    ]
    if not rows:
        return f"No positions of scope {found['scope']!r} are kept.\n"
    return columns(("CLUSTER TIME", "SAVED", "TOKEN"), rows)
