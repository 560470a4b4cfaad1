"""A stream whose updates get their documents: what is asked, in which order, and how it ends."""

from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed, ConnectionFailed, StreamEnded, StreamInterrupted
from tailrace.stream import ChangeStreamOptions, Interrupt, LookupStream
from tailrace.stream.activity import StreamActivity
from tests.unit.stream.fake_driver import (
    NETWORK,
    TIME,
    FakeDriver,
    event,
    failure,
    reply,
    tokens,
)
from tests.unit.stream.look_ups import LARGE, NS, documents, parts_until, position, read, update


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


async def test_a_text_key_without_a_document_is_asked_for_once_more() -> None:
    """A collation may make it equal to another key. One document of any of them tells."""
    events = [update("a", 1), update("b", "there"), update("c", "x"), update("d", "y")]
    driver = FakeDriver([reply()], [reply(*events, post_batch="p")], documents=[{"_id": "there"}])

    async def see(stream: LookupStream) -> None:
        assert documents(await stream.next_batch()) == [None, {"_id": "there"}, None, None]

    await read(driver, see)
    first, again = driver.look_ups
    assert (first.most, again.most) == (4, 0)
    assert bson.decode(again.filter) == {"_id": {"$in": ["x", "y"]}}


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
    """And is returned as it is."""
    given = reply("a", event("b", text="x" * LARGE), post_batch="p")
    driver = FakeDriver([reply()], [given])
    (batch,) = await parts_until("p", driver)
    assert batch.buffer is given.buffer
    assert (driver.look_ups, driver.reads) == ([], 1)


async def test_an_update_whose_key_a_pipeline_removes_asks_for_nothing() -> None:
    given = [event("a", "update"), event("b", "update")]
    driver = FakeDriver([reply()], [reply(*given, post_batch="p")])
    (batch,) = await parts_until("p", driver)
    assert [each.document for each in batch.events()] == given
    assert driver.look_ups == []


async def test_where_an_event_tells_no_time_the_reply_s_counts() -> None:
    driver = FakeDriver([reply()], [reply(update("a", 1), post_batch="p")])
    await parts_until("p", driver)
    assert [wanted.since for wanted in driver.look_ups] == [TIME]


async def test_a_look_up_counts_as_an_answer_of_the_server() -> None:
    activity = StreamActivity()
    driver = FakeDriver([reply()], [reply(update("a", 1), post_batch="p")])
    driver.found = anyio.Event()

    async def see(stream: LookupStream) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.next_batch)
            while not driver.look_ups:
                await anyio.lowlevel.checkpoint()
            activity.heard = None
            assert driver.found is not None
            driver.found.set()
        assert activity.heard is not None

    await read(driver, see, activity=activity, may_prefetch=lambda: False)


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


async def test_an_invalidate_comes_behind_the_updates_before_it() -> None:
    """It ends the stream once it is returned, and nothing is read behind it."""
    replies = [
        reply(update("a", 1), post_batch="a"),
        reply(
            update("b", 1, text="x" * LARGE), event("z", "invalidate"), post_batch="z", closed=True
        ),
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
