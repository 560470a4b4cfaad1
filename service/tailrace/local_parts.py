"""What the daemon opens before it asks a server: telemetry, a local store and the handlers.

So a file that cannot be read is reported even if no server answers.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from tailrace.assembly import local_store
from tailrace.config.settings import Settings
from tailrace.destination.tables import OpenTables
from tailrace.handlers.pool import HandlerPool, handler_pool
from tailrace.reload import DesiredConfig
from tailrace.stores import Store
from tailrace.telemetry.opening import telemetry
from tailrace.tracing import Tracing


@dataclass(frozen=True, slots=True)
class LocalParts:
    """``tracing``: ``None`` without traces. ``store``: ``None`` if it is on the server."""

    tracing: Tracing | None
    store: Store | None
    pool: HandlerPool


@asynccontextmanager
async def local_parts(
    settings: Settings, desired: DesiredConfig, registry: CollectorRegistry, tables: OpenTables
) -> AsyncIterator[LocalParts]:
    """The parts, until the block ends. ``registry`` has the metrics of the handlers."""
    async with (
        telemetry(settings.telemetry, registry) as tracing,
        local_store(settings) as store,
        handler_pool(registry, tables, leased=bool(settings.replicas)) as pool,
    ):
        handlers = await pool.add(desired.handlers.values(), settings.delivery, waits=True)
        pool.use(handlers)
        yield LocalParts(tracing, store, pool)
