"""The dead letters that wait are counted again and again, whoever resolves them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
from structlog.testing import capture_logs

from tailrace.engine import watch_letters
from tailrace.errors import DeadLetterError
from tailrace.observe.metrics import Metrics, ScopeGauges
from tailrace.stores.memory import MemoryDeadLetters
from tests.contract.stores import letter
from tests.unit.engine.changes import until


class Store(MemoryDeadLetters):
    """One that fails when a test says so."""

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
async def watching(store: Store) -> AsyncIterator[Metrics]:
    metrics = Metrics(["streaming"])
    metrics.watch("orders", lambda: ScopeGauges("streaming"))
    metrics.recorder("orders", "audit")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_letters, store, metrics, 1e-6)
        yield metrics
        tasks.cancel_scope.cancel()


async def test_a_store_that_fails_leaves_the_last_count_and_is_told_once() -> None:
    store = Store()
    await store.add(letter(1))
    with capture_logs() as logs:
        async with watching(store) as metrics:
            recorder = metrics.recorder("orders", "audit")
            await until(lambda: recorder.waiting == 1)
            store.failure = DeadLetterError("tailrace.db was moved")
            before = store.counts
            await until(lambda: store.counts >= before + 4)
            assert recorder.waiting == 1
            store.failure = None
            await store.resolve(letter(1), "discarded")
            await until(lambda: recorder.waiting == 0)
    told = [(log["event"], log["error"]) for log in logs]
    assert told == [("dead_letters.count_failed", "tailrace.db was moved")]
