"""A cursor stays with its member until the member no longer matches the read preference."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from tailrace.drivers import CommandDriver
from tailrace.errors import ConnectionFailed
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.stream.aggregate import request
from tests.contract.streams import (
    ABANDONS_CONNECTS,
    DRIVER_NAMES,
    NS,
    ORDERS,
    QUICK,
    connected,
    ids,
    position,
    read,
    starts,
)
from tests.scripted import ScriptedSet

pytestmark = [pytest.mark.parametrize("name", DRIVER_NAMES), *ABANDONS_CONNECTS]

SECONDARY = ChangeStreamOptions(max_await_time_ms=20, read_preference="secondary")


@pytest.fixture
def three() -> Iterator[ScriptedSet]:
    with ScriptedSet(members=3) as running:
        yield running


def kinds(driver: CommandDriver, three: ScriptedSet) -> list[str]:
    """The type of each member, as the driver sees it."""
    servers = driver.topology.server_descriptions()
    named = {f"{host}:{port}": server for (host, port), server in servers.items()}
    return [named[host].server_type_name if host in named else "" for host in three.hosts]


def members(server: ScriptedSet, command: str) -> list[int]:
    return [c.member for c in server.commands(command)]


async def test_every_get_more_goes_to_the_cursor_s_member(name: str, three: ScriptedSet) -> None:
    async with connected(name, three.uri, 4) as driver:
        streams = [ChangeStream(driver, ORDERS, SECONDARY) for _ in range(4)]
        for stream in streams:
            await stream.open()
        for _ in range(6):
            await asyncio.gather(*(stream.next_batch() for stream in streams))
        for stream in streams:
            await stream.aclose()
        await three.until("killCursors", count=4)
    owners = {c.document["lsid"]["id"]: c.member for c in three.commands() if c.name == "aggregate"}
    assert len(owners) == 4, "each stream has a session of its own"
    assert set(owners.values()) <= {1, 2}
    reads = three.commands("getMore")
    assert len(reads) == 20
    assert all(c.member == owners[c.document["lsid"]["id"]] for c in reads)
    assert sorted(members(three, "killCursors")) == sorted(owners.values())
    assert three.open_cursors == 0


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [("primaryPreferred", {0}), ("nearest", {0, 1, 2}), (None, {1, 2})],
)
async def test_a_read_preference_of_the_scope_or_else_of_the_uri_chooses_the_member(
    name: str, three: ScriptedSet, mode: str | None, allowed: set[int]
) -> None:
    async with connected(name, f"{three.uri}&readPreference=secondary") as driver:
        await driver.run("admin", {"ping": 1})  # connects; the client then knows all three
        await three.until(lambda c: "topologyVersion" in c.document, count=3)
        options = ChangeStreamOptions(read_preference=mode)
        async with ChangeStream(driver, ORDERS, options) as stream:
            await stream.next_batch()
    assert set(members(three, "aggregate")) <= allowed
    assert members(three, "ping") == [0], "plain commands want the primary"


async def until_known(driver: CommandDriver, three: ScriptedSet, *wanted: str) -> None:
    """Waits until the monitors see the members as these types."""
    with anyio.fail_after(60):
        while kinds(driver, three) != list(wanted):  # noqa: ASYNC110 - a monitor's thread
            await anyio.sleep(0.01)


async def owner_of(three: ScriptedSet, stream: ChangeStream) -> int:
    """The member that has the cursor of the stream, after a read."""
    three.clear()
    await stream.next_batch()
    return members(three, "getMore")[-1]


async def test_a_primary_that_stepped_down_keeps_its_cursor_while_there_is_no_other(
    name: str, three: ScriptedSet
) -> None:
    async with connected(name, three.uri) as driver, ChangeStream(driver, ORDERS, QUICK) as stream:
        await stream.next_batch()
        three.step_down()
        await until_known(driver, three, *["RSSecondary"] * 3)
        three.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
    assert set(members(three, "getMore")) == {0}
    assert members(three, "aggregate") == [0]


@asynccontextmanager
async def reading(
    name: str, three: ScriptedSet, mode: str
) -> AsyncIterator[tuple[CommandDriver, ChangeStream]]:
    """A stream with this read preference, on a driver that knows all three members."""
    async with connected(name, three.uri) as driver:
        await driver.run("admin", {"ping": 1})
        await until_known(driver, three, "RSPrimary", "RSSecondary", "RSSecondary")
        async with ChangeStream(driver, ORDERS, replace(QUICK, read_preference=mode)) as stream:
            await stream.next_batch()
            yield driver, stream


@pytest.mark.parametrize("mode", ["primary", "primaryPreferred"])
async def test_the_cursor_is_reopened_at_the_next_primary(
    name: str, three: ScriptedSet, mode: str
) -> None:
    async with reading(name, three, mode) as (driver, stream):
        three.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
        token = position(stream)
        three.step_down(successor=1)
        await until_known(driver, three, "RSSecondary", "RSPrimary", "RSSecondary")
        three.insert(NS, {"_id": 2})
        assert ids(await read(stream, 1)) == [2]
        await three.until("killCursors")
    assert members(three, "aggregate") == [0, 1]
    assert starts(three) == [{}, {"resumeAfter": token}]
    assert members(three, "killCursors")[0] == 0


async def test_an_elected_secondary_is_left_for_another_member(
    name: str, three: ScriptedSet
) -> None:
    async with reading(name, three, "secondaryPreferred") as (_, stream):
        owner = await owner_of(three, stream)
        three.elect(owner)
        with anyio.fail_after(60):
            while await owner_of(three, stream) == owner:
                pass


async def test_a_member_that_still_suits_keeps_the_cursor(name: str, three: ScriptedSet) -> None:
    async with reading(name, three, "secondaryPreferred") as (driver, stream):
        owner = await owner_of(three, stream)
        successor = 2 if owner == 1 else 1
        three.elect(successor)
        wanted = ["RSSecondary"] * 3
        wanted[successor] = "RSPrimary"
        await until_known(driver, three, *wanted)
        assert await owner_of(three, stream) == owner
        assert three.commands("aggregate") == []


async def test_a_read_that_is_under_way_is_given_up(name: str, three: ScriptedSet) -> None:
    options = ChangeStreamOptions(max_await_time_ms=60_000)
    async with (
        connected(name, three.uri) as driver,
        ChangeStream(driver, ORDERS, options) as stream,
    ):
        await stream.next_batch()
        waiting = asyncio.create_task(read(stream, 1))
        await three.until("getMore")
        three.step_down(successor=1)
        await three.until("aggregate", count=2)
        three.insert(NS, {"_id": 1})
        assert ids(await waiting) == [1]
    assert members(three, "aggregate") == [0, 1]


async def test_a_lost_member_is_reported_at_once(name: str, three: ScriptedSet) -> None:
    async with connected(name, three.uri, serverSelectionTimeoutMS=60_000) as driver:
        session = await driver.start_session()
        cursor = await session.open(request(ORDERS, SECONDARY, StartPoint()))
        (owner,) = members(three, "aggregate")
        three.stop_member(owner)
        async with asyncio.timeout(60):
            for _ in range(3):  # first by its connection, then by what the monitors know
                with pytest.raises(ConnectionFailed):
                    await cursor.next_batch()
            cursor.kill()
            await session.aclose()
    assert set(members(three, "getMore")) <= {owner}
    assert members(three, "killCursors") == []


@pytest.mark.parametrize("kind", ["direct", "mongos"])
async def test_one_server_without_a_choice_serves_too(name: str, kind: str) -> None:
    with ScriptedSet(kind="mongos" if kind == "mongos" else "replica_set") as server:
        direct = f"mongodb://{server.hosts[0]}/?directConnection=true"
        uri = server.uri if kind == "mongos" else direct
        async with (
            connected(name, uri) as driver,
            ChangeStream(driver, ORDERS, QUICK) as stream,
        ):
            server.insert(NS, {"_id": 1})
            server.fail("getMore", code=43)
            assert ids(await read(stream, 1)) == [1]
        assert server.open_cursors == 0
