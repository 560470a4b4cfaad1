"""The Motor adapter (default): PyMongo's synchronous client in threads, one hop per reply."""

import os
from typing import Any

import anyio.to_thread

from tailrace.drivers.command_driver import CommandDriver
from tailrace.drivers.connection import DriverClient
from tailrace.drivers.options import client_options, refusals

_THREADS = 1024
_SPARE_THREADS = 8


def motor_driver(uri: str, streams: int, **options: Any) -> CommandDriver:
    """A driver for ``streams`` change streams; connects when it is first used."""
    keywords = client_options(uri, streams, **options)
    # Motor reads the size of its one thread pool at import, and a waiting getMore holds a thread.
    # With the default of five per core, twenty idle streams delay every call by seconds. The first
    # driver of a process may be a probe, so the size is generous; threads are created on demand.
    workers = max(_THREADS, 2 * streams + _SPARE_THREADS)
    os.environ.setdefault("MOTOR_MAX_WORKERS", str(workers))
    from motor.motor_asyncio import AsyncIOMotorClient

    def open_client() -> DriverClient:
        with refusals(uri):
            client: Any = AsyncIOMotorClient(uri, **keywords)

        async def start_session() -> Any:
            return await client.start_session(causal_consistency=False)

        async def close() -> None:
            # In a thread: close() sends endSessions first, and the server may not answer.
            await anyio.to_thread.run_sync(client.close, abandon_on_cancel=True)

        return DriverClient(client, start_session, close)

    return CommandDriver(open_client)
