"""The demo's servers: an embedded process that always ends, or a user's server."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from pymongo import AsyncMongoClient
from rich.console import Console

from tailrace.demo.child_process import ChildProcess, child_process, last_lines
from tailrace.demo.display import Display
from tailrace.demo.processes import Service, ServiceProgress, running_service
from tailrace.demo.server import embedded_server, free_port
from tailrace.demo.source import OWN_DATABASE, DemoSource, opened_source
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, StartRefused, TailraceError
from tests.guards import against_hanging
from tests.mongod import Client, ReplicaSet, program

pytestmark = pytest.mark.integration


def running_in(directory: Path) -> list[int]:
    """The processes whose working directory is in ``directory``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
        except OSError:  # it has just ended, or belongs to another user
            continue
        if Path(where).is_relative_to(directory):
            found.append(int(process.name))
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Polls files and the process table, which send no notifications."""
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(0.01)


async def test_the_embedded_server_is_a_primary_until_the_end_of_the_block(tmp_path: Path) -> None:
    """Ready means that writes work.

    A second server on the same storage says why it cannot start, and the first one keeps running.
    """
    storage = tmp_path / "server"
    async with (
        embedded_server(program(), storage, tmp_path / "log") as uri,
        AsyncMongoClient[dict[str, Any]](uri) as client,
    ):
        await client.shop.orders.insert_one({})
        with pytest.raises(StartRefused, match=r"(?s)ended with code \d+.*DBPathInUse"):
            async with embedded_server(program(), storage, tmp_path / "second.log"):
                pass
        assert await client.shop.orders.count_documents({}) == 1
    assert running_in(tmp_path) == []


@pytest.mark.usefixtures("abandoned_connects")
@pytest.mark.parametrize("seconds", [0.2, 1.5])
async def test_a_cancelled_block_leaves_no_process(tmp_path: Path, seconds: float) -> None:
    """Both during the start and later."""
    with anyio.move_on_after(seconds) as scope:
        async with embedded_server(program(), tmp_path / "server", tmp_path / "log"):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert running_in(tmp_path) == []


async def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    """Leaving the block takes bounded time, and the exit code shows how the process ended."""
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(600)"
    )
    async with child_process(
        [sys.executable, "-c", program],
        log=tmp_path / "log",
        grace_seconds=0.1,
    ) as process:
        with against_hanging():
            await until(lambda: last_lines(process.log) == "deaf")
    assert process.process.returncode == -9


async def test_a_service_that_cannot_start_or_was_killed_is_an_error(tmp_path: Path) -> None:
    """The message contains the end of its log.

    Only exit code 0 means drained, and an unexpected end is noticed.
    """
    layout, port = Layout(tmp_path), free_port()
    with pytest.raises(StartRefused, match=r"(?s)ended with code 2 before it was ready.*mongodb"):
        async with running_service(layout, DemoSource("not a uri", "shop"), port):
            pass
    assert running_in(tmp_path) == []
    async with embedded_server(program(), layout.server, layout.log("server")) as uri:
        with pytest.raises(TailraceError, match="when it was told to stop"):
            await kill_a_service(layout, DemoSource(uri, "shop"), port)


async def kill_a_service(layout: Layout, source: DemoSource, port: int) -> None:
    async with running_service(layout, source, port) as service:
        service.check()
        [pid] = [pid for pid in running_in(layout.root) if "tailrace" in command_line(pid)]
        os.kill(pid, 9)
        with against_hanging():
            await until(lambda: ended_by_itself(service))
        assert await service.progress() == ServiceProgress(lag=None, all_handled=False)


@pytest.mark.parametrize(
    ("snapshot", "in_flight", "handler", "handled"),
    [
        (None, 0, "attached", False),
        ("planned", 0, "attached", False),
        ("reading", 0, "attached", False),
        ("done", 1, "attached", False),
        ("done", 0, "catching_up", False),
        ("done", 0, "attached", True),
    ],
)
async def test_all_is_handled_when_the_snapshot_is_over_and_no_event_is_in_flight(
    snapshot: str | None, in_flight: int, handler: str, handled: bool
) -> None:
    """A restart in mid snapshot has moments without an event in flight, and handlers that are on
    their own for a while."""
    scope = {
        "state": "caught_up",
        "snapshot": snapshot and {"state": snapshot},
        "in_flight": {"events": in_flight, "bytes": 0},
        "lag_seconds": {"handled": 0.5},
        "handlers": {"audit": {"state": "attached"}, "table": {"state": handler}},
    }

    class Answers(Service):
        async def get(self, path: str) -> tuple[int, str]:
            assert path == "/status"
            return 200, json.dumps({"scopes": {"shop": scope}})

    service = Answers(cast("ChildProcess", None), 0)
    assert await service.progress() == ServiceProgress(0.5, handled)


def ended_by_itself(service: Service) -> bool:
    try:
        service.check()
    except TailraceError as error:
        return "ended with code -9" in str(error)
    return False


def command_line(pid: int) -> list[str]:
    """The arguments of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.fixture
def client(mongod: ReplicaSet) -> Iterator[Client]:
    with mongod.client() as client:
        yield client
        client.drop_database(OWN_DATABASE)


async def use(uri: str, tmp_path: Path) -> None:
    """A demo that writes something and then fails."""
    async with opened_source(uri, Layout(tmp_path), Display(Console(file=StringIO()), 1)) as source:
        assert source == DemoSource(uri, OWN_DATABASE)
        raise RuntimeError


async def test_the_database_is_removed_when_the_demo_fails(
    client: Client, mongod: ReplicaSet, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError):
        await use(mongod.uri, tmp_path)
    assert OWN_DATABASE not in client.list_database_names()


async def test_a_database_of_that_name_is_left_alone(
    client: Client, mongod: ReplicaSet, tmp_path: Path
) -> None:
    """It may contain other data, so nothing is written or removed."""
    client[OWN_DATABASE].notes.insert_one({"_id": 1})
    with pytest.raises(ConfigurationError, match=f"the database '{OWN_DATABASE}' exists"):
        await use(mongod.uri, tmp_path)
    assert list(client[OWN_DATABASE].notes.find()) == [{"_id": 1}]


@pytest.mark.usefixtures("abandoned_connects")
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("localhost:27017", "is not a URI of MongoDB"),
        ("mongodb://", "is not a URI of MongoDB"),
        ("mongodb://u:secret@127.0.0.1:1/?serverSelectionTimeoutMS=200", "cannot be used"),
    ],
)
async def test_a_uri_that_leads_nowhere_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, message: str
) -> None:
    """It names the argument, and shows no password."""
    monkeypatch.setattr("tailrace.demo.source.SELECTION_SECONDS", 0.2)
    with pytest.raises(ConfigurationError, match=message) as raised:
        await use(uri, tmp_path)
    assert "--uri" in str(raised.value)
    assert "secret" not in str(raised.value)
