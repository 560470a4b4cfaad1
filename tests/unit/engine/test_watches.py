"""Queries beside the streams: the server's time, its oplog, the waiting dead letters."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.engine import ClusterWatch, watch_letters
from tailrace.engine.status.removed_letters import removed_letters
from tailrace.errors import CommandFailed, ConnectionFailed, DeadLetterError, DriverError
from tailrace.observe.metrics import Metrics
from tailrace.observe.scrape import ScopeGauges
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stream import ServerClock
from tests.contract.stores import letter
from tests.unit.engine.changes import time, until


class Server:
    """Answers a ping with its time, queries of its oplog with one entry or its sizes; or fails."""

    def __init__(self) -> None:
        self.now = 100
        self.first: int | None = 40
        self.hangs = False
        self.failure: DriverError | None = None
        self.oplog_failure: DriverError | None = None
        self.size_failure: DriverError | None = None
        self.sizes: dict[str, Any] = {"size": 250, "limit": 1000}
        self.commands: list[tuple[str, Mapping[str, Any]]] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append((database, command))
        await anyio.lowlevel.checkpoint()
        if self.hangs:
            await anyio.sleep_forever()
        if self.failure:
            raise self.failure
        if "ping" in command:
            return {"ok": 1, "operationTime": time(self.now)}
        if self.oplog_failure:
            raise self.oplog_failure
        if "aggregate" in command:
            if self.size_failure:
                raise self.size_failure
            return {"ok": 1, "cursor": {"firstBatch": [self.sizes]}}
        at = self.first if command["sort"] == {"$natural": 1} else self.now
        return {
            "ok": 1,
            "cursor": {"firstBatch": [] if self.first is None else [{"ts": time(at or 0)}]},
        }

    def asked(self, name: str) -> int:
        return sum(name in command for _, command in self.commands)

    async def until_asked(self, name: str) -> None:
        """Waits for another command from now on, and until its answer is processed."""
        before = self.asked(name)
        await until(lambda: self.asked(name) >= before + 3)


class Watched(ClusterWatch):
    """A cluster watch with its clock and very short intervals."""

    def __init__(self, server: Server, **seconds: float) -> None:
        self.elapsed = 0.0
        self.clock = ServerClock(lambda: self.elapsed)
        super().__init__(
            server, self.clock, **({"clock_seconds": 1e-6, "oplog_seconds": 1e-6} | seconds)
        )

    @property
    def window(self) -> float | None:
        return self.gauges().oplog_window

    @property
    def fill(self) -> float | None:
        return self.gauges().oplog_fill


@asynccontextmanager
async def watching(server: Server, **seconds: float) -> AsyncIterator[Watched]:
    watch = Watched(server, **seconds)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        yield watch
        tasks.cancel_scope.cancel()


async def test_the_time_is_the_servers_and_never_goes_back() -> None:
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.clock.now() == time(100))
        server.now = 120
        await until(lambda: watch.clock.now() == time(120))
        server.now = 90
        await server.until_asked("ping")
        assert watch.clock.now() == time(120)


async def test_the_window_is_from_the_first_entry_to_the_last() -> None:
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.window == 60)
        server.first = 70
        await until(lambda: watch.window == 30)
    looks = [command for _, command in server.commands if "find" in command]
    assert {look["find"] for look in looks} == {"oplog.rs"}
    assert {look["limit"] for look in looks} == {1}


async def test_the_oplog_says_how_full_it_is() -> None:
    """An oplog that is not full has lost nothing, however short its window is."""
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.fill == 0.25)
        server.sizes = {"size": 1024, "limit": 1000}  # mongod truncates a little later
        await until(lambda: watch.fill == 1.0)


@pytest.mark.parametrize("refused", [True, False])
async def test_an_oplog_that_is_refused_or_empty_is_absent(refused: bool) -> None:
    """No role on the database local, or a mongos, which has no such collection."""
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.window == 60)
        if refused:
            server.oplog_failure = CommandFailed("not authorized on local", code=13)
        else:
            server.first = None
        await until(lambda: watch.window is None)
        assert watch.clock.now() == time(100)


async def test_a_silent_server_changes_nothing_that_is_known_of_its_oplog() -> None:
    """An outage must not resolve the alert of endangered history; the age shows how old it is."""
    server = Server()
    with capture_logs() as logs:
        async with watching(server) as watch:
            await until(lambda: watch.window == 60)
            server.failure = ConnectionFailed("no primary")
            await server.until_asked("ping")
            watch.elapsed += 600
            assert (watch.clock.now(), watch.window) == (time(700), 60)
            gauges = watch.gauges()
            assert gauges.up is False
            assert gauges.oplog_age
            document = watch.document()
            assert document["up"] is False
            assert document["unreachable_since"] == document["last_answer"] is not None
            server.failure = None
            server.oplog_failure = ConnectionFailed("no primary")
            await server.until_asked("find")
            assert watch.window == 60
    assert {log["log_level"] for log in logs} == {"debug"}


async def test_a_refusal_is_an_answer() -> None:
    server = Server()
    async with watching(server) as watch:
        await until(lambda: watch.window == 60)
        watch.elapsed += 600
        server.failure = CommandFailed("not authorized", code=13)
        await until(lambda: watch.clock.up)


async def test_an_answer_that_never_comes_is_given_up() -> None:
    """A connection that only looks open would otherwise prevent all later queries."""
    server = Server()
    server.hangs = True
    async with watching(server, ask_seconds=1e-3) as watch:
        await until(lambda: server.asked("ping") >= 2)
        server.hangs = False
        await until(lambda: watch.clock.now() == time(100))


class Store(MemoryDeadLetters):
    """A store that fails if a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self.counts = 0

    async def count(self) -> Mapping[tuple[str, str], int]:
        self.counts += 1
        await anyio.lowlevel.checkpoint()
        if self.failure:
            raise self.failure
        return await super().count()


@asynccontextmanager
async def counting(store: Store) -> AsyncIterator[Metrics]:
    metrics = Metrics(["streaming"])
    metrics.watch("orders", lambda: ScopeGauges("streaming"))
    metrics.recorder("orders", "audit")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_letters, store, metrics, 1e-6)
        yield metrics
        tasks.cancel_scope.cancel()


async def test_a_store_that_fails_leaves_the_last_count_and_is_told_once() -> None:
    store = Store()
    await store.add(letter(1), 1)
    with capture_logs() as logs:
        async with counting(store) as metrics:
            recorder = metrics.recorder("orders", "audit")
            await until(lambda: recorder.waiting == 1)
            store.failure = DeadLetterError("tailrace.db was moved")
            before = store.counts
            await until(lambda: store.counts >= before + 4)
            assert recorder.waiting == 1
            store.failure = None
            await store.resolve(letter(1), "discarded")
            await until(lambda: recorder.waiting == 0)
    reports = [(log["event"], log["error"]) for log in logs]
    assert reports == [("dead_letters.count_failed", "tailrace.db was moved")]


async def test_letters_of_what_a_reload_removed_are_counted_and_told_with_what_to_do() -> None:
    store = Store()
    for scope, handler in (("orders", "audit"), ("orders", "gone"), ("users", "audit")):
        await store.add(letter(1, scope=scope, handler=handler), 1)
    async with counting(store) as metrics:
        await until(lambda: len(metrics.waiting()) == 2)
        metrics.watch("users", lambda: ScopeGauges("streaming"))
        metrics.retain("users", None)
        await until(lambda: len(metrics.waiting()) == 3)
        value = metrics.registry.get_sample_value
        labels = {"scope": "users", "handler": "audit"}
        assert value("tailrace_dead_letters_waiting", labels) == 1
        told = removed_letters(metrics.waiting(), {"orders": ["audit"]})
        assert [each.split(":")[0] for each in told] == ["scope orders", "scope users"]
        assert "add it again and replay them, or 'tailrace dead-letters discard" in told[0]
        await store.resolve(letter(1, scope="users"), "discarded")
        await until(lambda: value("tailrace_dead_letters_waiting", labels) is None)
