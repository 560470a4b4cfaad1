"""A database of our own: whether it may be made, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, NoReturn

import anyio

from tailrace.compat.answer import AnswerKind, negative
from tailrace.drivers import CommandDriver
from tailrace.errors import CommandFailed, ConfigurationError, DriverError, Problem, StartRefused

PREFIX = "tailrace_compat_"
_ACTIONS = frozenset(
    {
        *("changeStream", "createCollection", "createIndex", "dropCollection"),
        *("find", "insert", "listCollections", "remove", "update"),
    }
)
_DROP_SECONDS = 30.0


@asynccontextmanager
async def own_database(driver: CommandDriver, name: str) -> AsyncIterator[None]:
    """Drops the database at the end, also after an error or a cancellation.

    Raises :class:`ConfigurationError` if the user lacks a right or the database has collections,
    before anything is written, and :class:`StartRefused` if it cannot be dropped.
    """
    await _require_rights(driver, name)
    if await _collections(driver, name):
        _refuse("--database", "it has collections, and would be dropped: name an empty one")
    left = f"no answer in {_DROP_SECONDS:g} s"
    try:
        try:
            await _try(driver, name)
        except DriverError as error:
            _refuse("--uri", f"{name} cannot be used: {negative(error).reason}: {_GRANT}")
        yield
    finally:
        with anyio.move_on_after(_DROP_SECONDS, shield=True):
            left = await _drop(driver, name)
        if left:
            raise StartRefused(f"the database {name} could not be dropped ({left}): drop it")


_GRANT = (
    "grant readWriteAnyDatabase, or readWrite on a database that does not exist yet, and name that "
    "with --database"
)


async def _try(driver: CommandDriver, name: str) -> None:
    """What all questions need, where the server does not tell the user's rights."""
    await driver.run(name, {"create": "tried"})
    stage = {"aggregate": "tried", "pipeline": [{"$changeStream": {}}], "cursor": {"batchSize": 0}}
    cursor = (await driver.run(name, stage))["cursor"]["id"]
    with suppress(CommandFailed):
        await driver.run(name, {"killCursors": "tried", "cursors": [cursor]})


async def _require_rights(driver: CommandDriver, name: str) -> None:
    """Refuses a user who is known to lack an action."""
    command = {"connectionStatus": 1, "showPrivileges": True}
    try:
        info: Mapping[str, Any] = (await driver.run("admin", command)).get("authInfo") or {}
    except CommandFailed:
        return
    privileges = info.get("authenticatedUserPrivileges")
    if not info.get("authenticatedUsers") or privileges is None:
        return
    may: set[str] = set()
    for privilege in privileges:
        of = privilege.get("resource", {})
        if of.get("anyResource") or (of.get("db") in ("", name) and of.get("collection") == ""):
            may |= {*privilege.get("actions", ())}
    if "anyAction" not in may and (lacks := sorted(_ACTIONS - may)):
        _refuse("--uri", f"the user lacks {', '.join(lacks)} on the database {name}: {_GRANT}")


async def _collections(driver: CommandDriver, name: str) -> list[str]:
    command = {"listCollections": 1, "nameOnly": True, "cursor": {}}
    listed = (await driver.run(name, command))["cursor"]["firstBatch"]
    return [each["name"] for each in listed if not each["name"].startswith("system.")]


async def _drop(driver: CommandDriver, name: str) -> str:
    """Drops the database, or its collections if the user may no more; returns why that failed."""
    for _ in range(5):
        try:
            with suppress(CommandFailed):  # the role readWrite may not
                await driver.run(name, {"dropDatabase": 1})
            for collection in await _collections(driver, name):
                await driver.run(name, {"drop": collection})
            return ""
        except DriverError as error:
            why = negative(error)
        if why.kind is AnswerKind.NOT_ALLOWED:
            break
        await anyio.sleep(1)  # as during an election
    return why.reason


def _refuse(where: str, message: str) -> NoReturn:
    raise ConfigurationError(Problem(where, message))
