"""Calls a Kafka handler as the engine does, and reads what it has sent."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp
from prometheus_client import CollectorRegistry

from tailrace.destination.batch import Batch, ScopeContext
from tailrace.destinations.kafka.at_least_once import Kafka
from tailrace.destinations.kafka.exactly_once import ExactlyOnceKafka
from tailrace.destinations.kafka.settings import KafkaHandlerSettings
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tests.destinations import kafka
from tests.guards import against_hanging
from tests.handlers import opening


def event(
    identity: Any = 7, operation: str = "insert", text: str = "", collection: str = "orders"
) -> ChangeEvent:
    document: dict[str, Any] = {
        "_id": {"_data": f"8265{identity:08}"},
        "operationType": operation,
        "clusterTime": Timestamp(1_700_000_000, 1),
        "ns": {"db": "shop", "coll": collection},
        "documentKey": {"_id": identity},
        "fullDocument": {"_id": identity, "text": text},
    }
    return ChangeEvent.from_document(document)


def scope(name: str = "orders", epoch: int = 1) -> ScopeContext:
    return ScopeContext(name, epoch, 1, structlog.get_logger(), CollectorRegistry())


def batch(*events: ChangeEvent, epoch: int = 1, **positions: str | None) -> Batch:
    return Batch(events, scope(epoch=epoch), **positions)


@asynccontextmanager
async def opened(topics: kafka.Kafka, **more: Any) -> AsyncIterator[Any]:
    """The handler ``bus``, entered; it is patient, unless a test is about its time limit."""
    settings = KafkaHandlerSettings(**{**topics.handler, "timeout_seconds": 30, **more})
    kind = ExactlyOnceKafka if settings.exactly_once else Kafka
    async with kind(opening("bus"), settings) as found:
        yield found


def ids(topics: kafka.Kafka, isolation: str = "read_committed") -> list[int]:
    """The ``_id`` of each message of ``shop.orders``, in order."""
    found = topics.server.messages(f"{topics.prefix}.shop.orders", isolation=isolation)
    return [json.loads(each.value() or b"")["documentKey"]["_id"] for each in found]


async def until_available(call: Callable[[], Awaitable[Any]]) -> Any:
    with against_hanging():
        while True:
            try:
                return await call()
            except Unavailable:
                await anyio.sleep(0.1)


async def begun(bus: Any) -> str | None:
    """The position with which it begins. A broker that has just created the topic of positions
    answers that it has no leader."""
    position: str | None = await until_available(lambda: bus.begin(scope()))
    return position
