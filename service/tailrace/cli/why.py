"""``tailrace why``: what became of a document.

Asks the server, the store and the lakes. The oplog and the lakes are searched for about
``--seconds``. The daemon on this machine answers; where none runs, the command asks by itself.

Exit codes: 0 answered, 1 the store failed or the daemon refused, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from tailrace.cli.action_command import add_options
from tailrace.cli.arguments import add_config, client_of, read_settings, refuse, require_scope
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.cli.why_text import text_of
from tailrace.config.catalog import TablesAt
from tailrace.config.served import ServedSettings, load_served
from tailrace.config.store import MemoryStoreSettings
from tailrace.control.actions.why import WhyQuery
from tailrace.control.client import NoDaemon

if TYPE_CHECKING:
    from tailrace.event.key import Key
    from tailrace.why.answer import DocumentOutcome


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("--scope", required=True, help="the scope that should have delivered it")
    add_options(parser, WhyQuery)
    parser.add_argument(
        "--tables",
        metavar="DIR",
        help="where the pipeline's tables are; default: pipeline.tables of the configuration",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the answer."""
    from tailrace.event.key import read_key

    served = load_served(options.config)
    require_scope(options.scope, None, served.handlers, options.config)
    if not 0 < options.seconds <= 300:
        refuse("--seconds", "is a number of seconds above 0, up to 300")
    try:
        key = read_key(options.key)
    except ValueError as error:
        refuse("--key", str(error))
    with waiting_bar("searching the oplog and the lakes", 2 * options.seconds):
        answer = _answer(served, options, key)
    print(json.dumps(answer, indent=2) if options.json else text_of(answer, sys.stdout), end="")
    print(end="\n" if options.json else "")
    return 0


def _answer(served: ServedSettings, options: argparse.Namespace, key: Key) -> dict[str, Any]:
    """The answer of the daemon, or the one without it."""
    try:
        answer: dict[str, Any] = client_of(served, options.config).get(
            f"/scopes/{quote(options.scope, safe='')}/why",
            patience_seconds=3 * options.seconds + 30,
            key=options.key,
            collection=options.collection,
            seconds=options.seconds,
        )
    except NoDaemon:
        if isinstance(served.store, MemoryStoreSettings):
            raise
        return anyio.run(_ask, options, key).to_document()
    if options.tables:
        anyio.run(_add_tables, answer, options, key)
    return answer


async def _ask(options: argparse.Namespace, key: Key) -> DocumentOutcome:
    """Asks without a daemon."""
    from tailrace.assembly import inquiries, open_store
    from tailrace.cli.document_tables import find_document
    from tailrace.drivers import DRIVERS

    settings = read_settings(options)
    factory, uri = DRIVERS[settings.mongodb.driver], settings.mongodb.uri.get_secret_value()
    async with open_store(settings) as store, factory(uri, 1) as driver:
        inquiry = inquiries(settings, store, driver, find_document)[options.scope]
        if options.tables:
            inquiry = replace(inquiry, tables_at=settings.pipeline.tables_at(options.tables))
        try:
            return await inquiry.answer(key, options.collection, options.seconds)
        except ValueError as error:
            refuse("--collection", str(error))


async def _add_tables(answer: dict[str, Any], options: argparse.Namespace, key: Key) -> None:
    """Adds to a daemon's answer what the tables at ``--tables`` have."""
    from tailrace.cli.document_tables import find_document
    from tailrace.why.answer import plain
    from tailrace.why.lakes_and_tables import published_in

    named: str = answer["collection"] or ""
    database, _, name = named.partition(".")
    collection = (database, name) if name else None
    tables, unknown = await published_in(
        find_document, TablesAt(options.tables), options.scope, key, collection, (), options.seconds
    )
    answer["tables"], answer["unknown"] = plain(tables), [*answer["unknown"], *unknown]
