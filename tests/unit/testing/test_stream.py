"""What a read of the stream in memory waits for; its events: ``tests/contract``."""

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tailrace.model import Scope, StartPoint
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tailrace.testing import Changes
from tailrace.testing.stream import MemoryDriver


@pytest.mark.parametrize("idle", [0, 5], ids=["at first", "when idle for long"])
async def test_a_read_without_changes_waits_for_one(idle: int) -> None:
    """Otherwise a test would read as fast as it can while its destination is at work."""
    changes, read = Changes(), list[int]()
    scope, start = Scope("orders", changes.ns.db, changes.ns.coll), StartPoint()
    options = ChangeStreamOptions(idle_await_ms=4000)
    async with (
        ChangeStream(MemoryDriver(changes.oplog), scope, options, start) as stream,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(1 + idle):  # the first reply is that of the aggregate
            assert not len(await stream.next_batch())

        async def next_one() -> None:
            read.append(len(await stream.next_batch()))

        tasks.start_soon(next_one)
        while not (read or changes.oplog.grown.statistics().tasks_waiting):
            await checkpoint()
        changes.insert({"_id": 1})
    assert read == [1]
