"""The Motor adapter (default): PyMongo's synchronous client in threads, one hop per reply."""

from __future__ import annotations

import os
from typing import Any, cast

from service.drivers.commands import AsyncClient, CommandDriver
from service.drivers.options import client_options

_SPARE_THREADS = 8


def motor_driver(uri: str, streams: int, **options: Any) -> CommandDriver:
    """A driver for ``streams`` change streams; connects when it is first used.

    Raises :class:`service.errors.ConfigurationError` for a URI that cannot be used.
    """
    keywords = client_options(uri, streams, **options)
    # Motor reads the size of its one thread pool when it is imported, and a waiting getMore holds
    # a thread: with the default of five per core, twenty idle streams delay every call by seconds.
    os.environ.setdefault("MOTOR_MAX_WORKERS", str(2 * streams + _SPARE_THREADS))
    from motor.motor_asyncio import AsyncIOMotorClient

    client: Any = AsyncIOMotorClient(uri, **keywords)

    async def start_session() -> Any:
        return await client.start_session(causal_consistency=False)

    async def close() -> None:
        client.close()

    return CommandDriver(cast(AsyncClient, client), start_session, close)
