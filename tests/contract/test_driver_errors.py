"""Each failure is one of two kinds: an error reply of the server, or no reply at all."""

import asyncio

import pytest

from tailrace.errors import CommandFailed, ConnectionFailed
from tailrace.model import StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.aggregate import request
from tests.contract.streams import ABANDONS_CONNECTS, DRIVER_NAMES, ORDERS, QUICK, connected
from tests.scripted import RESUMABLE, ScriptedSet

pytestmark = [pytest.mark.parametrize("name", DRIVER_NAMES), *ABANDONS_CONNECTS]

OPEN = request(ORDERS, QUICK, StartPoint())


# All kinds of exceptions that the drivers raise for a reply.
CODES = [2, 43, 50, 10107, 11602, 286]


@pytest.mark.parametrize("labels", [(), (RESUMABLE, "Other")], ids=["bare", "labelled"])
@pytest.mark.parametrize("command", ["aggregate", "getMore"])
async def test_the_server_s_answer_keeps_code_labels_and_wire_version(
    name: str, scripted: ScriptedSet, command: str, labels: tuple[str, ...]
) -> None:
    scripted.behave(max_wire_version=17)
    async with connected(name, scripted.uri) as driver:
        session = await driver.start_session()
        for code in CODES:
            cursor = await session.open(OPEN)
            scripted.fail(command, code=code, labels=labels, message="as scripted")
            with pytest.raises(CommandFailed) as raised:
                await (cursor.next_batch() if command == "getMore" else session.open(OPEN))
            error = raised.value
            assert (error.code, error.labels) == (code, frozenset(labels))
            assert error.wire_version == 17
            assert error.code_name
            assert str(error) == f"as scripted (code {code} {error.code_name})"


async def test_a_direct_connection_knows_the_wire_version_after_the_error_too(
    name: str, scripted: ScriptedSet
) -> None:
    uri = f"mongodb://{scripted.hosts[0]}/?directConnection=true"
    async with connected(name, uri) as driver:
        cursor = await (await driver.start_session()).open(OPEN)
        scripted.fail("getMore", code=11600)
        with pytest.raises(CommandFailed) as raised:
            await cursor.next_batch()
        assert raised.value.wire_version == 21


async def test_no_server_to_select_is_no_answer(name: str) -> None:
    uri = "mongodb://127.0.0.1:9/?replicaSet=none"
    async with connected(name, uri, serverSelectionTimeoutMS=50) as driver:
        with pytest.raises(ConnectionFailed, match="ServerSelectionTimeout"):
            await (await driver.start_session()).open(OPEN)
        with pytest.raises(ConnectionFailed):
            await driver.run("admin", {"ping": 1})


async def test_a_half_open_connection_is_noticed_by_its_heartbeats(
    name: str, scripted: ScriptedSet
) -> None:
    options = {"connectTimeoutMS": 300, "serverSelectionTimeoutMS": 100}
    async with connected(name, scripted.uri, **options) as driver:
        session = await driver.start_session()
        long = request(ORDERS, ChangeStreamOptions(max_await_time_ms=60_000), StartPoint())
        cursor = await session.open(long)
        scripted.partition(0)
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionFailed):
                await cursor.next_batch()
        scripted.heal(0)


async def test_a_command_that_cannot_be_encoded_is_a_driver_error(
    name: str, scripted: ScriptedSet
) -> None:
    odd = ChangeStreamOptions(comment=object())
    async with connected(name, scripted.uri) as driver:
        with pytest.raises(ConnectionFailed, match="InvalidDocument"):
            await (await driver.start_session()).open(request(ORDERS, odd, StartPoint()))
