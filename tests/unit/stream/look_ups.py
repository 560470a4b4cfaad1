"""A stream that looks documents up, on a driver with a script."""

from collections.abc import Awaitable, Callable
from typing import Any

from tailrace.event import RawBatch
from tailrace.stream import ChangeStream, ChangeStreamOptions, Interrupt, LookupStream
from tailrace.stream.activity import StreamActivity
from tests.guards import against_hanging
from tests.unit.stream.fake_driver import SCOPE, FakeDriver, event

NS = {"db": "shop", "coll": "orders"}
LARGE = 70_000
"""Bytes of a reply for which nothing else waits."""


def update(name: str, key: Any, **more: Any) -> dict[str, Any]:
    return event(name, "update", ns=NS, documentKey={"_id": key}) | more


def documents(batch: RawBatch) -> list[Any]:
    return [each.document.get("fullDocument", "absent") for each in batch.events()]


async def read(
    driver: FakeDriver,
    call: Callable[[LookupStream], Awaitable[Any]],
    of_stream: ChangeStreamOptions | None = None,
    *,
    activity: StreamActivity | None = None,
    interrupt: Interrupt | None = None,
    **options: Any,
) -> LookupStream:
    """Reads behind the reply that opens the stream."""
    stream = ChangeStream(driver, SCOPE, of_stream, activity=activity, interrupt=interrupt)
    looking = LookupStream(stream, driver, interrupt=interrupt, **options)
    await looking.open()

    async def behind_the_first(stream: LookupStream) -> None:
        assert not len(await stream.next_batch())
        await call(stream)

    try:
        with against_hanging():
            await looking.reading(behind_the_first)
    finally:
        await looking.aclose()
    return looking


async def parts_until(end: str, driver: FakeDriver, **options: Any) -> list[RawBatch]:
    """What the stream returns until it stands there."""
    parts: list[RawBatch] = []

    async def see(stream: LookupStream) -> None:
        while position(stream) != end:
            parts.append(await stream.next_batch())

    await read(driver, see, **options)
    return parts


def position(stream: LookupStream) -> Any:
    return stream.resume_token and stream.resume_token.document["_data"]
