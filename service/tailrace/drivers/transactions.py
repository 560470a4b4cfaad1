"""Transactions of both drivers: PyMongo's asyncio API begins one in a coroutine, Motor does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from pymongo.write_concern import WriteConcern

from tailrace.drivers.connection import mapped
from tailrace.errors import DriverError

if TYPE_CHECKING:
    from tailrace.drivers.connection import Connection


async def begin(session: Any, **options: Any) -> None:
    """Begins a transaction in a session of either driver."""
    with mapped():
        begun = session.start_transaction(**options)
        if isawaitable(begun):
            await begun


async def commit(
    connection: Connection, session: Any, database: str, commands: Sequence[Mapping[str, Any]]
) -> None:
    """Runs writes in one transaction, which a majority has when this returns."""
    await begin(session, write_concern=WriteConcern("majority"))
    try:
        with mapped():
            for command in commands:
                await connection.database(database).command(command, session=session)
            await session.commit_transaction()
    except BaseException:
        with suppress(DriverError), mapped():
            await session.abort_transaction()
        raise
