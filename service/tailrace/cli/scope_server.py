"""The server of a scope, for commands that ask it without a daemon."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.assembly import stream_options, target
from tailrace.config.scopes import ScopeSettings
from tailrace.config.settings import Settings
from tailrace.control.server_positions import ServerPositions
from tailrace.drivers import DRIVERS


@asynccontextmanager
async def scope_server(settings: Settings, scope: ScopeSettings) -> AsyncIterator[ServerPositions]:
    """Its positions, with a client that closes when the block ends."""
    factory, uri = DRIVERS[settings.mongodb.driver], settings.mongodb.uri.get_secret_value()
    async with factory(uri, 1) as driver:
        yield ServerPositions(target(scope), stream_options(scope), driver, lambda: None, driver)
