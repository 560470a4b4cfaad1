"""The adapter to PyMongo's own asyncio API, Motor's successor, which uses no threads."""

from typing import Any

from tailrace.drivers.command_driver import CommandDriver
from tailrace.drivers.connection import DriverClient
from tailrace.drivers.options import client_options, refusals


def pymongo_driver(uri: str, streams: int, **options: Any) -> CommandDriver:
    """A driver for ``streams`` change streams; connects when it is first used."""
    from pymongo import AsyncMongoClient

    keywords = client_options(uri, streams, **options)

    def open_client() -> DriverClient:
        with refusals(uri):
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **keywords)

        async def start_session() -> Any:
            return client.start_session(causal_consistency=False)

        return DriverClient(client, start_session, client.close)

    return CommandDriver(open_client)
