"""Where the demo writes: on the embedded server, or on the user's own replica set."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from tailrace.demo.display import Display
from tailrace.demo.programs import find_mongod
from tailrace.demo.server import embedded_server
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem, describe

DATABASE = "shop"
"""The demo's database on the embedded server."""

OWN_DATABASE = "tailrace_demo"
"""The demo's database on a server that may have other data."""

SELECTION_SECONDS = 10
REMOVAL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DemoSource:
    """A server to which the demo may write, and the demo's database there."""

    uri: str
    database: str


@asynccontextmanager
async def opened_source(
    uri: str | None, layout: Layout, display: Display
) -> AsyncIterator[DemoSource]:
    """Opens the source for the block. At the end, nothing of the demo is left on the server."""
    if uri is None:
        program = await find_mongod()
        async with embedded_server(program, layout.server, layout.log("server")) as embedded:
            display.say(f"The embedded server listens at {embedded}")
            yield DemoSource(embedded, DATABASE)
        return
    try:
        hosts = ", ".join(f"{host}:{port}" for host, port in parse_uri(uri)["nodelist"])
        client = AsyncMongoClient[dict[str, Any]](
            uri, serverSelectionTimeoutMS=SELECTION_SECONDS * 1000
        )
    except (PyMongoError, ValueError) as error:
        raise _refused(f"is not a URI of MongoDB: {describe(error)}") from error
    async with client:
        await _require_room(client, hosts)
        display.say(f"The demo uses the database {OWN_DATABASE!r} at {hosts}")
        try:
            yield DemoSource(uri, OWN_DATABASE)
        finally:
            await _remove(client, hosts, display)


async def _require_room(client: AsyncMongoClient[dict[str, Any]], hosts: str) -> None:
    try:
        hello = await client.admin.command("hello")
        names = await client.list_database_names()
    except PyMongoError as error:
        raise _refused(f"cannot be used: {describe(error)}") from error
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise _refused(
            f"leads to {hosts}, a standalone server, which has no change streams: a replica set "
            "or a sharded cluster is needed"
        )
    if OWN_DATABASE in names:
        raise _refused(
            f"leads to {hosts}, where the database {OWN_DATABASE!r} exists. The demo writes to it "
            "and removes it at its end: remove it first, if an earlier demo that was killed left it"
        )


async def _remove(client: AsyncMongoClient[dict[str, Any]], hosts: str, display: Display) -> None:
    with anyio.move_on_after(REMOVAL_SECONDS, shield=True) as limit:
        try:
            await client.drop_database(OWN_DATABASE)
            return
        except PyMongoError as error:
            reason = describe(error)
    if limit.cancelled_caught:
        reason = f"no answer within {REMOVAL_SECONDS:.0f} s"
    display.say(f"The database {OWN_DATABASE!r} at {hosts} could not be removed: {reason}")


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(Problem("--uri", why))
