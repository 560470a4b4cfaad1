"""The questions beside the streams: the server's time, and how far back its oplog goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from structlog.testing import capture_logs

from service.engine import ClusterWatch
from service.errors import CommandFailed, ConnectionFailed, DriverError
from tests.unit.engine.changes import time, until


class Server:
    """Answers a ping with its time and a look at its oplog with one entry; or fails."""

    def __init__(self) -> None:
        self.now = 100
        self.first: int | None = 40
        self.no_time = False
        self.failure: DriverError | None = None
        self.oplog_failure: DriverError | None = None
        self.commands: list[tuple[str, Mapping[str, Any]]] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append((database, command))
        await anyio.lowlevel.checkpoint()
        if self.failure:
            raise self.failure
        if "ping" in command:
            return {"ok": 1} if self.no_time else {"ok": 1, "operationTime": time(self.now)}
        if self.oplog_failure:
            raise self.oplog_failure
        at = self.first if command["sort"] == {"$natural": 1} else self.now
        return {
            "ok": 1,
            "cursor": {"firstBatch": [] if self.first is None else [{"ts": time(at or 0)}]},
        }

    def asked(self, name: str) -> int:
        return sum(name in command for _, command in self.commands)

    async def until_asked(self, name: str) -> None:
        """Once more from now on, and the answer taken."""
        before = self.asked(name)
        await until(lambda: self.asked(name) >= before + 3)


@asynccontextmanager
async def watching(server: Server, **seconds: float) -> AsyncIterator[ClusterWatch]:
    watch = ClusterWatch(server, **({"clock_seconds": 1e-6, "oplog_seconds": 1e-6} | seconds))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        yield watch
        tasks.cancel_scope.cancel()


async def test_both_are_unknown_before_the_first_answer() -> None:
    watch = ClusterWatch(Server())
    assert (watch.server_time, watch.oplog_window) == (None, None)


async def test_the_time_is_the_servers_and_never_goes_back() -> None:
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.server_time == time(100))
        server.now = 120
        await until(lambda: watch.server_time == time(120))
        server.now = 90
        await server.until_asked("ping")
        assert watch.server_time == time(120)


async def test_a_server_that_tells_no_time_leaves_it_unknown() -> None:
    server = Server()
    server.no_time = True
    async with watching(server) as watch:
        await server.until_asked("ping")
        assert watch.server_time is None


async def test_the_window_is_from_the_first_entry_to_the_last() -> None:
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.oplog_window == 60)
        server.first = 70
        await until(lambda: watch.oplog_window == 30)
    looks = [command for database, command in server.commands if database == "local"]
    assert {look["find"] for look in looks} == {"oplog.rs"}
    assert {look["limit"] for look in looks} == {1}


async def test_the_oplog_is_asked_less_often_than_the_time() -> None:
    server = Server()
    async with watching(server, clock_seconds=1e-6, oplog_seconds=5e-6):
        await until(lambda: server.asked("ping") > 20)
    assert server.asked("find") / 2 <= server.asked("ping") / 5 + 1


async def test_a_refused_oplog_is_absent_and_told_once() -> None:
    """No role for the database local, or a mongos, where there is no such collection."""
    server = Server()
    server.oplog_failure = CommandFailed("not authorized on local", code=13)
    with capture_logs() as logs:
        async with watching(server) as watch:
            await server.until_asked("find")
            assert watch.oplog_window is None
            assert watch.server_time == time(100)
            server.oplog_failure = None
            await until(lambda: watch.oplog_window == 60)
            server.oplog_failure = CommandFailed("not authorized on local", code=13)
            await until(lambda: watch.oplog_window is None)
    told = [log for log in logs if log["event"] == "oplog.unreadable"]
    assert [log["log_level"] for log in told] == ["debug", "debug"]
    assert "not authorized" in told[0]["reason"]


async def test_an_empty_oplog_is_absent() -> None:
    server = Server()
    server.first = None
    async with watching(server) as watch:
        await server.until_asked("find")
        assert watch.oplog_window is None


async def test_a_silent_server_changes_nothing() -> None:
    """An outage must not resolve the alert that history is at risk."""
    server = Server()
    with capture_logs() as logs:
        async with watching(server) as watch:
            await until(lambda: watch.oplog_window == 60)
            server.failure = ConnectionFailed("no primary")
            await server.until_asked("ping")
            assert (watch.server_time, watch.oplog_window) == (time(100), 60)
            server.failure = None
            server.oplog_failure = ConnectionFailed("no primary")
            await server.until_asked("find")
            assert watch.oplog_window == 60
    assert {log["log_level"] for log in logs} == {"debug"}
