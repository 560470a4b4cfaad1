"""Calls a destination as the engine does, in the test's own process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter

from tailrace.config.delivery import DeliverySettings
from tailrace.engine import Handler, PerBatch
from tailrace.event import ChangeEvent
from tailrace.handlers import open_handlers
from tailrace.handlers.handler_type import Opening, Trial
from tailrace.handlers.types import BUILT_IN
from tailrace.model import Scope
from tests.handlers import OWNER, deliver

ORDERS = Scope("orders", "shop", "orders")


@asynccontextmanager
async def opened(given: Mapping[str, Any], *scopes: Scope) -> AsyncIterator[Handler]:
    """The handler ``it`` with this configuration, for the scope ``orders``."""
    settings = TypeAdapter(BUILT_IN[given["type"]].settings).validate_python(given)
    follows = {"it": scopes or (ORDERS,)}
    async with open_handlers({"it": settings}, DeliverySettings(), follows=follows) as handlers:
        yield handlers["it"]


async def send(handler: Handler, *events: ChangeEvent) -> None:
    """Delivers consecutive events: DDL alone, and the others in batches."""
    batch: list[ChangeEvent] = []
    for event in events:
        if not event.is_ddl:
            batch.append(event)
            continue
        await _write(handler, batch)
        batch = []
        assert isinstance(handler.calls, PerBatch)
        assert handler.calls.on_ddl is not None
        await handler.calls.on_ddl(event, OWNER)
    await _write(handler, batch)


async def _write(handler: Handler, batch: Sequence[ChangeEvent]) -> None:
    if batch:
        await deliver(handler, *batch)


async def attempted(given: Mapping[str, Any], *scopes: Scope) -> str:
    """What ``check --connect`` says of the handler ``it``."""
    kind = BUILT_IN[given["type"]]
    settings = TypeAdapter(kind.settings).validate_python(given)
    follows = scopes or (ORDERS,)
    opening = Opening("it", DeliverySettings(), CollectorRegistry(), follows=follows)
    assert kind.attempt is not None
    return await kind.attempt(opening, settings, Trial(follows, "rs0"))
