"""A long read: the server is asked whether it is still executing it, and no timeout ends it."""

from typing import Any

import anyio
import pytest
from bson.timestamp import Timestamp

from tailrace.drivers.connection import COMMAND_MS
from tailrace.model import StartPoint
from tailrace.stream import ChangeStream, StreamActivity
from tests.contract.streams import DRIVER_NAMES, NS, ORDERS, QUICK, at, connected, ids, read
from tests.mongod import ReplicaSet
from tests.scripted import Command, ScriptedSet

pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)


class Witness(StreamActivity):
    """The activity of a stream: the times at which its server said that it executes the read."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[Timestamp | None] = []
        self.first = anyio.Event()

    def at_work(self, server_time: Timestamp | None) -> None:
        super().at_work(server_time)
        self.times.append(server_time)
        self.first.set()


def searching(server: ScriptedSet, seconds: float) -> StartPoint:
    """A start in the past, from which the server scans for this long; event 1 follows."""
    start = at(server.cluster_time)
    server.insert(NS, {"_id": 1})
    server.behave(scan_seconds=seconds)
    return start


def asked(command: Command) -> bool:
    return command.name == "currentOp"


async def test_a_scan_reports_activity_until_its_events_come(
    name: str, scripted: ScriptedSet
) -> None:
    witness, start = Witness(), searching(scripted, 2.0)
    async with (
        connected(name, scripted.uri) as driver,
        ChangeStream(driver, ORDERS, QUICK, start, activity=witness) as stream,
    ):
        assert ids(await read(stream, 1)) == [1]
    assert len(witness.times) >= 2
    assert set(witness.times) == {scripted.cluster_time}
    questions = [c for c in scripted.commands() if asked(c)]
    (reading, *_) = scripted.commands("getMore")
    assert {c.document["pipeline"][1]["$match"]["command.getMore"] for c in questions} == {
        reading.document["getMore"]
    }
    assert reading.connection not in {c.connection for c in questions}
    assert len(scripted.commands("aggregate")) == 1


@pytest.mark.parametrize("question", ["answered", "silent"])
async def test_a_hanging_read_reports_no_activity(
    name: str, scripted: ScriptedSet, question: str
) -> None:
    """The server has lost the read, or its connection, and says that it is not executing it."""
    witness = Witness()
    if question == "silent":
        scripted.fail("currentOp", times=None, silent=True)
    async with (
        connected(name, scripted.uri) as driver,
        ChangeStream(driver, ORDERS, QUICK, activity=witness) as stream,
    ):
        await stream.next_batch()
        scripted.fail("getMore", times=None, silent=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.next_batch)
            await scripted.until(asked, count=1 if question == "silent" else 3)
            tasks.cancel_scope.cancel()
    assert witness.times == []


async def test_every_command_has_a_time_limit(name: str, scripted: ScriptedSet) -> None:
    """Otherwise a default time limit of the server would apply, even to these aggregates."""
    witness, start = Witness(), searching(scripted, 1.0)
    async with connected(name, scripted.uri) as driver:
        await driver.run("admin", {"ping": 1})
        await driver.run("admin", {"ping": 1, "maxTimeMS": 7})
        async with ChangeStream(driver, ORDERS, QUICK, start, activity=witness) as stream:
            await read(stream, 1)
        await scripted.until("killCursors")
    of_drivers = {"hello", "ismaster", "isMaster", "endSessions"}
    limits: dict[str, list[Any]] = {}
    for command in scripted.commands():
        if command.name not in of_drivers:
            limits.setdefault(command.name, []).append(command.document.get("maxTimeMS"))
    assert limits.pop("ping") == [COMMAND_MS, 7]
    assert set(limits.pop("getMore")) == {QUICK.max_await_time_ms}
    assert limits.keys() == {"aggregate", "currentOp", "killCursors"}
    assert all(isinstance(limit, int) for given in limits.values() for limit in given)


async def test_a_user_without_any_privilege_but_to_read_is_told_by_mongod(
    name: str, guarded: ReplicaSet
) -> None:
    """`$currentOp` shows a user that user's own operations."""
    reader, pause = f"reads_{name}", "waitAfterPinningCursorBeforeGetMoreBatch"
    with guarded.client() as client:
        client.admin.command(
            "createUser", reader, pwd="right", roles=[{"role": "read", "db": "shop"}]
        )
    witness = Witness()
    async with (
        connected(name, guarded.uri_as(reader, "right")) as driver,
        ChangeStream(driver, ORDERS, QUICK, activity=witness) as stream,
    ):
        await stream.next_batch()
        guarded.fail_point(pause, "alwaysOn")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.next_batch)
                with anyio.fail_after(60):
                    await witness.first.wait()
                guarded.fail_point(pause, "off")
        finally:
            guarded.fail_point(pause, "off")
    assert None not in witness.times
