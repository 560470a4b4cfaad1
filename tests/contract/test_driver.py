"""Both adapters fulfil the port: opening, reading, killing, errors, sessions, members."""

import asyncio
import threading

import pytest

from tailrace.errors import ConnectionFailed
from tailrace.event import RawBatch
from tailrace.event.reply import Reply
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.aggregate import request
from tests.contract.streams import (
    DRIVER_NAMES,
    NS,
    ORDERS,
    QUICK,
    connected,
    following,
    ids,
    read,
    read_batch,
)
from tests.scripted import RESUMABLE, ScriptedSet, encoded_inserts

pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)

OPEN = request(ORDERS, QUICK, StartPoint())


def count(reply: Reply) -> int:
    return len(RawBatch(reply.buffer, reply.bounds, None))


async def test_a_cursor_is_opened_read_and_killed(name: str, scripted: ScriptedSet) -> None:
    async with connected(name, scripted.uri) as driver:
        session = await driver.start_session()
        cursor = await session.open(OPEN)
        assert count(cursor.first) == 0
        scripted.insert(NS, {"_id": 1})
        reply = await cursor.next_batch()
        assert (count(reply), reply.closed) == (1, False)
        assert reply.operation_time == scripted.cluster_time
        assert reply.post_batch_token is not None
        cursor.kill()
        (kill,) = await scripted.until("killCursors")
        assert scripted.open_cursors == 0
        cursor.kill()
        with pytest.raises(ConnectionFailed, match="closed"):
            await cursor.next_batch()
        await session.aclose()
    assert kill.database == "shop"
    assert len(scripted.commands("killCursors")) == 1


async def test_a_large_reply_is_one_batch(name: str, scripted: ScriptedSet) -> None:
    scripted.behave(reply_bytes=46_400_000)
    async with following(name, scripted) as stream:
        raw = encoded_inserts(NS, 94, 500_000, scripted.cluster_time)
        scripted.append_raw(raw)
        batch = await read_batch(stream)
        assert batch.size > 45_000_000
        assert [event.raw for event in batch.events()] == raw[: len(batch)]


async def test_a_reply_that_is_no_cursor_is_no_answer_of_the_server(
    name: str, scripted: ScriptedSet
) -> None:
    scripted.on_command(lambda c: {"ok": 1.0} if c.name == "aggregate" else None)
    async with connected(name, scripted.uri) as driver:
        with pytest.raises(ConnectionFailed, match="not a cursor"):
            await (await driver.start_session()).open(OPEN)


async def test_a_stream_keeps_its_session_over_resumes_and_waits_for_nobody_s_writes(
    name: str, scripted: ScriptedSet
) -> None:
    async with following(name, scripted) as stream:
        scripted.fail("getMore", code=43)
        scripted.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
    sent = scripted.commands("aggregate") + scripted.commands("getMore")
    assert len(scripted.commands("aggregate")) == 2
    assert len({command.document["lsid"]["id"] for command in sent}) == 1
    assert not any("readConcern" in command.document for command in sent)
    assert "afterClusterTime" not in str([command.document for command in sent])


async def test_the_uri_s_read_concern_is_the_aggregate_s(name: str, scripted: ScriptedSet) -> None:
    uri = f"{scripted.uri}&readConcernLevel=local"
    async with (
        connected(name, uri) as driver,
        ChangeStream(driver, ORDERS, QUICK) as stream,
    ):
        scripted.fail("getMore", code=43)
        scripted.insert(NS, {"_id": 1})
        await read(stream, 1)
    concerns = [c.document.get("readConcern") for c in scripted.commands("aggregate")]
    assert concerns == [{"level": "local"}] * 2
    assert not any("readConcern" in c.document for c in scripted.commands("getMore"))


async def test_closing_frees_the_cursor_and_gives_the_session_back(
    name: str, scripted: ScriptedSet
) -> None:
    async with following(name, scripted) as stream:
        await stream.next_batch()
    assert scripted.open_cursors == 0
    sent = [command.name for command in scripted.commands()]
    assert sent.index("killCursors") < sent.index("endSessions")


async def test_nobody_waits_for_a_kill_and_closing_is_bounded(
    name: str, scripted: ScriptedSet, quick_closing: float
) -> None:
    hung = scripted.fail("killCursors", times=None, silent=True)
    loop = asyncio.get_running_loop()
    async with following(name, scripted) as stream:
        scripted.fail("getMore", code=11600, labels=[RESUMABLE])
        scripted.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
        await scripted.until("killCursors")
        scripted.insert(NS, {"_id": 2})
        assert ids(await read(stream, 1)) == [2]
        closing = loop.time()
    assert hung.hits
    assert loop.time() - closing < quick_closing + 3


async def test_closing_with_a_server_that_does_not_answer_is_bounded(
    name: str, scripted: ScriptedSet, quick_closing: float
) -> None:
    loop = asyncio.get_running_loop()
    heal = threading.Timer(10, scripted.heal, [0])  # ends a failing test too
    heal.start()
    async with connected(name, scripted.uri) as driver:
        sessions = [await driver.start_session() for _ in range(3)]
        for session in sessions:
            await session.open(OPEN)
        for session in sessions:
            await session.aclose()  # the pool keeps the sessions, to end them at the server
        scripted.partition(0)
        closing = loop.time()
    assert loop.time() - closing < 3 * quick_closing + 3
    heal.cancel()
    scripted.heal(0)


async def test_a_read_that_is_cancelled_leaves_no_cursor(name: str, scripted: ScriptedSet) -> None:
    options = ChangeStreamOptions(max_await_time_ms=400)
    async with following(name, scripted, options) as stream:
        await stream.next_batch()
        reading = asyncio.create_task(stream.next_batch())
        await scripted.until("getMore")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await scripted.until("killCursors")
    assert scripted.open_cursors == 0
