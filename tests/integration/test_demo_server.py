"""The embedded server as a process: it starts, it keeps its data, and it always ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from pymongo import AsyncMongoClient

from tailrace.demo.child_process import ChildProcess
from tailrace.demo.directory import Layout
from tailrace.demo.server import EmbeddedServer
from tailrace.demo.service_process import ServiceProcess
from tailrace.demo.source import Source
from tailrace.errors import StartRefused, TailraceError
from tests.mongod import program

pytestmark = pytest.mark.integration


def running_in(directory: Path) -> list[int]:
    """The processes whose working directory lies there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = os.readlink(process / "cwd")
        except OSError:  # ended just now, or somebody else's
            continue
        if Path(where).is_relative_to(directory):
            found.append(int(process.name))
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Polls what sends no signal: files and the table of processes."""
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(0.01)


async def test_it_is_a_primary_that_keeps_its_data(tmp_path: Path) -> None:
    """Ready means that writes work; the end of the block is the end of the process."""
    async with (
        EmbeddedServer(program(), tmp_path / "server") as server,
        AsyncMongoClient[dict[str, Any]](server.uri) as client,
    ):
        await client.shop.orders.insert_one({})
        assert await client.shop.orders.count_documents({}) == 1
        assert server.exit_code is None
    assert server.exit_code is not None
    assert running_in(tmp_path) == []


async def test_flags_reach_the_program(tmp_path: Path) -> None:
    """Fail points exist only where the parameter was given."""
    flags = ["--setParameter", "enableTestCommands=1"]
    async with (
        EmbeddedServer(program(), tmp_path / "server", flags=flags) as server,
        AsyncMongoClient[dict[str, Any]](server.uri) as client,
    ):
        await client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})


@pytest.mark.parametrize("seconds", [0, 0.2, 1.5])
async def test_a_cancelled_block_leaves_no_process(tmp_path: Path, seconds: float) -> None:
    """While it starts as well as while it runs."""
    with anyio.move_on_after(seconds) as scope:
        async with EmbeddedServer(program(), tmp_path / "server"):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert running_in(tmp_path) == []


async def test_a_server_that_cannot_start_says_what_it_printed(tmp_path: Path) -> None:
    """A second server on the same storage is refused, and the first one goes on."""
    async with EmbeddedServer(program(), tmp_path / "server") as server:
        second = EmbeddedServer(program(), tmp_path / "server", log=tmp_path / "second.log")
        with pytest.raises(StartRefused, match=r"(?s)ended with code \d+.*DBPathInUse"):
            await second.__aenter__()
        assert server.exit_code is None


async def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    """Leaving the block is bounded, and the exit code tells how it ended."""
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(600)"
    )
    process = ChildProcess(
        "deaf",
        [sys.executable, "-c", program],
        log=tmp_path / "log",
        directory=tmp_path,
        grace_seconds=0.1,
    )
    async with process:
        assert "pid" in repr(process)
        with anyio.fail_after(20):
            await until(lambda: process.last_lines() == "deaf")
    assert process.exit_code == -9


async def test_a_service_that_cannot_start_says_what_it_printed(tmp_path: Path) -> None:
    """The end of its log is in the message."""
    layout = Layout(tmp_path)
    with pytest.raises(StartRefused, match=r"(?s)ended with code 2 before it was ready.*mongodb"):
        async with ServiceProcess(layout, Source("not a uri", "shop")):
            pass
    assert running_in(tmp_path) == []


async def test_a_service_that_was_killed_is_no_clean_stop(tmp_path: Path) -> None:
    """Only exit code 0 means drained; and an end that nobody asked for is noticed."""
    layout = Layout(tmp_path)
    async with (
        EmbeddedServer(program(), layout.server) as server,
        ServiceProcess(layout, Source(server.uri, "shop")) as service,
    ):
        service.check()
        [pid] = [pid for pid in running_in(tmp_path) if "service" in command_line(pid)]
        os.kill(pid, 9)
        with anyio.fail_after(20):
            await until(lambda: "exit code -9" in repr(service))
        with pytest.raises(TailraceError, match="ended with code -9"):
            service.check()
        assert await service.metrics() == {}
        with pytest.raises(TailraceError, match="when it was told to stop"):
            await service.stop()


def command_line(pid: int) -> list[str]:
    """The arguments of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
