"""Calls a destination as the engine does, in the test's own process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import TypeAdapter

from tailrace.config.delivery import DeliverySettings
from tailrace.destination.handler_type import Opening
from tailrace.engine import Handler, PerBatch
from tailrace.event import ChangeEvent
from tailrace.handlers.open_handler import open_handler
from tailrace.handlers.probe import probe_handler
from tailrace.handlers.types import BUILT_IN
from tailrace.model import Scope
from tests.handlers import ORDERS, OWNER, deliver

__all__ = ["ORDERS"]


@asynccontextmanager
async def opened(given: Mapping[str, Any], *scopes: Scope) -> AsyncIterator[Handler]:
    """The handler ``it`` with this configuration, for ``orders`` or the first of these."""
    follows = scopes or (ORDERS,)
    opening = Opening("it", follows[0], DeliverySettings(), CollectorRegistry(), follows)
    async with open_handler(opening, settings_of(given)) as handler:
        yield handler


def settings_of(given: Mapping[str, Any]) -> Any:
    return TypeAdapter(BUILT_IN[given["type"]].settings).validate_python(given)


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
    return await probe_handler("it", settings_of(given), scopes or (ORDERS,), "rs0")
