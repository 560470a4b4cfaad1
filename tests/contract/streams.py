"""Shared by the suites of drivers and change streams: connecting, reading, and what was sent."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.drivers import DRIVERS, CommandDriver
from tailrace.event import ChangeEvent, RawBatch
from tailrace.model import ResumeToken, Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tests.scripted import ScriptedSet

DRIVER_NAMES = sorted(DRIVERS)
ORDERS = Scope("orders", "shop", "orders")
QUICK = ChangeStreamOptions(max_await_time_ms=30)
NS = "shop.orders"

ABANDONS_CONNECTS = (pytest.mark.usefixtures("abandoned_connects", "quick_closing"),)
"""For tests that close a client while a server is down: see the fixtures."""


@asynccontextmanager
async def connected(
    name: str, uri: str, streams: int = 1, **options: Any
) -> AsyncIterator[CommandDriver]:
    """A driver that notices changes of the set quickly."""
    quick = {"heartbeatFrequencyMS": 500, "serverSelectionTimeoutMS": 5000}
    async with DRIVERS[name](uri, streams, **(quick | options)) as driver:
        yield driver


@asynccontextmanager
async def following(
    name: str,
    server: ScriptedSet,
    options: ChangeStreamOptions = QUICK,
    start: StartPoint | None = None,
    scope: Scope = ORDERS,
    **client: Any,
) -> AsyncIterator[ChangeStream]:
    """An open stream on the scripted server."""
    async with (
        connected(name, server.uri, **client) as driver,
        ChangeStream(driver, scope, options, start) as stream,
    ):
        yield stream


async def read(stream: ChangeStream, count: int) -> list[ChangeEvent]:
    """The next ``count`` events, from as many replies as they need."""
    events: list[ChangeEvent] = []
    async with asyncio.timeout(60):
        while len(events) < count:
            events += (await stream.next_batch()).events()
    assert len(events) == count
    return events


async def read_batch(stream: ChangeStream) -> RawBatch:
    """The next reply that has events."""
    async with asyncio.timeout(60):
        while not len(batch := await stream.next_batch()):
            pass
    return batch


def ids(events: list[ChangeEvent]) -> list[Any]:
    return [(event.document_key or {}).get("_id") for event in events]


def starts(server: ScriptedSet) -> list[dict[str, Any]]:
    """The start option of every aggregate received, in order."""
    names = ("resumeAfter", "startAfter", "startAtOperationTime")
    stages = [command.change_stream or {} for command in server.commands("aggregate")]
    return [{name: stage[name] for name in names if name in stage} for stage in stages]


def position(stream: ChangeStream) -> Mapping[str, Any] | None:
    return None if stream.resume_token is None else stream.resume_token.document


def after(token: Mapping[str, Any]) -> StartPoint:
    return StartPoint(resume_after=ResumeToken.of(token))


def behind(token: Mapping[str, Any]) -> StartPoint:
    return StartPoint(start_after=ResumeToken.of(token))


def at(time: Timestamp) -> StartPoint:
    return StartPoint(at_operation_time=time)
