"""A stream whose updates get their documents: what is asked, in which order, and how it ends."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, ConnectionFailed, StreamEnded, StreamInterrupted
from tailrace.event import Batch
from tailrace.stream import ChangeStream, ChangeStreamOptions, Interrupt, LookupStream
from tests.unit.stream.fake_driver import (
    NETWORK,
    SCOPE,
    TIME,
    FakeDriver,
    event,
    failure,
    reply,
    tokens,
)

NS = {"db": "shop", "coll": "orders"}
LONG = "x" * 70_000
"""Makes a reply so large that the next one is read ahead."""


def update(name: str, key: Any, **more: Any) -> dict[str, Any]:
    return event(name, "update", ns=NS, documentKey={"_id": key}, **more)


def documents(batch: Batch) -> list[Any]:
    return [each.document.get("fullDocument", "absent") for each in batch.events()]


async def read(
    driver: FakeDriver,
    call: Callable[[LookupStream], Awaitable[Any]],
    of_stream: ChangeStreamOptions | None = None,
    *,
    interrupt: Interrupt | None = None,
    **options: Any,
) -> LookupStream:
    """Reads behind the reply that opens the stream."""
    stream = ChangeStream(driver, SCOPE, of_stream, interrupt=interrupt)
    looking = LookupStream(stream, driver, interrupt=interrupt, **options)
    await looking.open()

    async def behind_the_first(stream: LookupStream) -> None:
        assert not len(await stream.next_batch())
        await call(stream)

    try:
        with anyio.fail_after(10):
            await looking.reading(behind_the_first)
    finally:
        await looking.aclose()
    return looking


def position(stream: LookupStream) -> Any:
    return stream.resume_token and stream.resume_token.document["_data"]


async def test_a_reply_s_documents_are_asked_for_together_as_of_its_last_event() -> None:
    first, last = Timestamp(5, 1), Timestamp(5, 2)
    events = [
        update("a", 1, clusterTime=first),
        update("b", 2, clusterTime=first),
        event("c", "insert", fullDocument={"_id": 3}, clusterTime=first),
        update("d", 1, clusterTime=last),
    ]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")], documents=[{"_id": 1, "n": 9}])

    async def see(stream: LookupStream) -> None:
        batch = await stream.next_batch()
        assert documents(batch) == [{"_id": 1, "n": 9}, None, {"_id": 3}, {"_id": 1, "n": 9}]
        assert batch.operations() == {"update": 3, "insert": 1}
        assert (position(stream), batch.operation_time) == ("p", TIME)

    await read(driver, see, read_preference="secondary")
    (wanted,) = driver.look_ups
    assert bson.decode(wanted.filter) == {"_id": {"$in": [1, 2]}}
    assert (wanted.database, wanted.collection) == ("shop", "orders")
    assert (wanted.since, wanted.read_preference, wanted.most) == (last, "secondary", 2)


async def test_an_update_that_came_in_fragments_gets_its_document() -> None:
    """Once it is whole; until then there is nothing to look up."""
    head = {"splitEvent": {"fragment": 1, "of": 2}, "operationType": "update", "ns": NS}
    tail = {"splitEvent": {"fragment": 2, "of": 2}, "documentKey": {"_id": 1}}
    replies = [reply({"_id": {"_data": "a"}, **head}), reply({"_id": {"_data": "b"}, **tail})]
    driver = FakeDriver([reply()], replies, documents=[{"_id": 1}])

    async def see(stream: LookupStream) -> None:
        assert not len(await stream.next_batch())
        batch = await stream.next_batch()
        assert (tokens(batch.events()), documents(batch)) == (["b"], [{"_id": 1}])

    await read(driver, see, ChangeStreamOptions(split_large_events=True))
    assert len(driver.look_ups) == 1


async def test_a_reply_without_updates_asks_for_nothing() -> None:
    driver = FakeDriver([reply()], [reply("a", post_batch="p")])

    async def see(stream: LookupStream) -> None:
        assert tokens((await stream.next_batch()).events()) == ["a"]

    await read(driver, see)
    assert (driver.look_ups, driver.reads) == ([], 1)


async def test_the_next_reply_is_read_while_documents_are_looked_up() -> None:
    replies = [reply(update("a", 1, text=LONG)), reply(update("b", 1)), reply("c")]
    driver = FakeDriver([reply()], replies)
    driver.found = anyio.Event()

    async def see(stream: LookupStream) -> None:
        async with anyio.create_task_group() as tasks:
            seen: list[str] = []

            async def reading() -> None:
                for _ in range(3):
                    seen.extend(tokens((await stream.next_batch()).events()))

            tasks.start_soon(reading)
            while driver.reads < 2:
                await anyio.lowlevel.checkpoint()
            assert (len(driver.look_ups), seen) == (1, [])
            assert driver.found is not None
            driver.found.set()
        assert seen == ["a", "b", "c"]

    await read(driver, see)


async def test_behind_a_small_reply_one_is_read_ahead_once_a_look_up_was_slow() -> None:
    """Else the next read would delay its documents."""
    driver = FakeDriver([reply()], [reply(update(name, 1)) for name in "abc"])

    async def see(stream: LookupStream) -> None:
        await stream.next_batch()
        assert driver.reads == 1
        driver.found = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.next_batch)
            await anyio.sleep(0.02)
            assert (len(driver.look_ups), driver.reads) == (2, 2)
            driver.found.set()
        await stream.next_batch()
        await anyio.wait_all_tasks_blocked()
        assert driver.reads == 4

    await read(driver, see)


async def test_nothing_is_read_ahead_where_it_may_not() -> None:
    driver = FakeDriver([reply()], [reply(update(name, 1, text=LONG)) for name in "ab"])

    async def see(stream: LookupStream) -> None:
        for reads in (1, 2):
            await stream.next_batch()
            assert driver.reads == reads

    await read(driver, see, may_read_ahead=lambda: False)


async def test_large_documents_come_in_parts_each_with_its_own_position() -> None:
    """The last part has the reply's."""
    events = [update(name, number) for number, name in enumerate("abc")]
    found = [{"_id": number, "text": "x" * 600} for number in range(3)]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p"), reply("d")], documents=found)

    async def see(stream: LookupStream) -> None:
        for name, where in (("a", "a"), ("b", "b"), ("c", "p")):
            batch = await stream.next_batch()
            assert (tokens(batch.events()), position(stream)) == ([name], where)
            assert batch.token == stream.resume_token
            assert batch.operations() == {"update": 1}
        assert tokens((await stream.next_batch()).events()) == ["d"]

    await read(driver, see, most_bytes=1000)
    assert len(driver.look_ups) == 1


async def test_fewer_are_asked_for_where_a_reply_does_not_hold_all() -> None:
    events = [update(str(number), number) for number in range(10)]
    found = [{"_id": number} for number in range(10)]
    driver = FakeDriver([reply()], [reply(*events)], documents=found, most_found=3)
    seen: list[Any] = []

    async def see(stream: LookupStream) -> None:
        while len(seen) < 10:
            seen.extend(documents(await stream.next_batch()))

    await read(driver, see)
    assert seen == found
    assert all(wanted.most <= 5 for wanted in driver.look_ups[1:])


async def test_a_look_up_that_may_succeed_is_sent_once_more() -> None:
    refusals = [NETWORK, failure(11602), failure(134)]
    replies = [reply(update(name, 1)) for name in "abc"]
    driver = FakeDriver([reply()], replies, documents=[{"_id": 1}])

    async def see(stream: LookupStream) -> None:
        for refusal in refusals:
            driver.refusals = [refusal]
            assert documents(await stream.next_batch()) == [{"_id": 1}]

    await read(driver, see)
    assert len(driver.look_ups) == 6


@pytest.mark.parametrize(
    ("refusals", "kind", "sent"),
    [
        ([failure(13)], CommandFailed, 1),
        ([failure(11602), failure(11600)], CommandFailed, 2),
        ([NETWORK, NETWORK], ConnectionFailed, 2),
    ],
)
async def test_an_error_names_the_collection_and_the_position_stays(
    refusals: list[Any], kind: type[Exception], sent: int
) -> None:
    driver = FakeDriver([reply(post_batch="o")], [reply(update("a", 1), post_batch="p"), reply()])
    driver.refusals = refusals
    at = []

    async def see(stream: LookupStream) -> None:
        try:
            await stream.next_batch()
        finally:
            at.append(position(stream))

    with pytest.raises(kind, match=r"documents of shop\.orders cannot be looked up: "):
        await read(driver, see)
    assert (at, len(driver.look_ups)) == (["o"], sent)


async def test_an_error_of_the_next_read_comes_behind_the_documents() -> None:
    replies = [reply(update("a", 1, text=LONG), post_batch="p"), failure(13)]
    driver, at = FakeDriver([reply()], replies), list[Any]()

    async def see(stream: LookupStream) -> None:
        await stream.next_batch()
        at.append(position(stream))
        await stream.next_batch()

    with pytest.raises(CommandFailed):
        await read(driver, see)
    assert at == ["p"]


async def test_an_invalidate_comes_behind_the_updates_before_it() -> None:
    """It ends the stream once it is returned, and nothing is read behind it."""
    replies = [
        reply(update("a", 1), post_batch="a"),
        reply(update("b", 1, text=LONG), event("z", "invalidate"), post_batch="z", closed=True),
    ]
    driver = FakeDriver([reply()], replies)

    async def see(stream: LookupStream) -> None:
        for ended in (False, True):
            await stream.next_batch()
            assert stream.invalidated is ended

    await read(driver, see)
    assert driver.reads == 2


async def test_a_stop_does_not_wait_for_documents() -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1)), reply()])
    driver.found, interrupt = anyio.Event(), Interrupt()

    async def see(stream: LookupStream) -> None:
        async with anyio.create_task_group() as tasks:

            async def stop() -> None:
                await anyio.wait_all_tasks_blocked()
                interrupt.set()

            tasks.start_soon(stop)
            with pytest.raises(StreamInterrupted, match="stopped while documents were looked up"):
                await stream.next_batch()

    await read(driver, see, interrupt=interrupt)


async def test_a_cursor_that_ends_without_reason_is_told_behind_its_last_documents() -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1), closed=True)])

    async def see(stream: LookupStream) -> None:
        assert documents(await stream.next_batch()) == [None]
        with pytest.raises(StreamEnded):
            await stream.next_batch()

    await read(driver, see)
