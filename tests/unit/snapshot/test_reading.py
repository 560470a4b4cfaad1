"""When rows are read, as of which time, and which of them a destination has already.

The next chunk is read while the last one is handled; it is used only if nothing changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import KnownSnapshots, TimeUnavailable
from tailrace.errors import ConnectionFailed
from tailrace.event.reply import Reply, read_reply
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import (
    DocumentId,
    RangeProgress,
    SnapshotMode,
    SnapshotState,
    StoredRows,
)
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots
from tests.guards import against_hanging
from tests.snapshots import ordered

TIME, LATER, NOW = Timestamp(9, 1), Timestamp(9, 2), Timestamp(9, 5)
UUID = "0" * 32


@dataclass
class Counting:
    """A server whose ``n``-th find returns document ``n``, and that tells its time; or it fails."""

    times: list[Timestamp] = field(default_factory=list)
    failing: bool = False
    passed: bool = False
    """Whether all further documents are after those that a handler has."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        assert command == {"ping": 1}
        return {"ok": 1, "operationTime": NOW}

    async def find(self, find: Find) -> Sequence[Reply]:
        if self.failing:
            raise ConnectionFailed("no primary")
        if self.passed and "$lte" in str(find.command["filter"]):
            return [read_reply(bson.encode({"cursor": {"firstBatch": [], "id": 0, "ns": ""}}))]
        self.times.append(find.time)
        cursor = {"firstBatch": [{"_id": len(self.times)}], "id": 0, "ns": "shop.c"}
        return [read_reply(bson.encode({"cursor": cursor}))]


def snapshots(
    server: Counting, rows: Mapping[str, StoredRows] | None = None, **options: Any
) -> Snapshots:
    """The snapshots of a scope, one of which is in progress; a chunk has one document."""
    made = Snapshots(Scope("s", "shop"), server, SnapshotOptions(chunk_documents=1, **options))
    progress = SnapshotProgress(
        "id",
        SnapshotMode.INITIAL,
        SnapshotState.READING,
        ranges={UUID: RangeProgress(UUID, "shop", "c", 9)},
        began=TIME,
    )
    made.begin(KnownSnapshots(progress, rows=rows or {}))
    return made


async def read(
    scope: Snapshots, time: Timestamp, *, briefly: bool = False
) -> tuple[int, Timestamp]:
    """The ``_id`` that is read next, and the time as of which."""
    (rows,) = await scope.read(time, briefly=briefly)
    (event,) = rows.batch.events()
    document = event.full_document
    assert document is not None
    return document["_id"], rows.time


async def test_a_chunk_read_ahead_comes_next() -> None:
    server = Counting()
    scope = snapshots(server)
    for number in range(1, 4):
        assert await read(scope, TIME) == (number, TIME)
        with against_hanging():  # a chunk that took long is followed by a pause
            while len(server.times) == number:
                await anyio.lowlevel.checkpoint()
                await scope.prefetch(TIME)
        assert len(server.times) == number + 1


@pytest.mark.parametrize(("time", "briefly"), [(LATER, False), (LATER, True), (TIME, True)])
async def test_a_chunk_read_ahead_is_dropped_if_changes_came(
    time: Timestamp, briefly: bool
) -> None:
    """The documents may have changed, and a chunk among changes is a brief one."""
    server = Counting()
    scope = snapshots(server)
    await scope.prefetch(TIME)
    assert await read(scope, time, briefly=briefly) == (2, time)
    assert server.times == [TIME, time]


async def test_a_machine_that_stands_still_in_a_chunk_is_followed_by_no_long_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It rests for seven times what the server has spent, which is 0.8 s at most."""
    clock = [1000.0]
    monkeypatch.setattr(anyio, "current_time", lambda: clock[0])

    class Paused(Counting):
        async def find(self, find: Find) -> Sequence[Reply]:
            clock[0] += 10
            return await super().find(find)

    server = Paused()
    scope = snapshots(server)
    assert await read(scope, TIME, briefly=True) == (1, TIME)
    await scope.prefetch(TIME)
    assert len(server.times) == 1
    clock[0] += 6
    await scope.prefetch(TIME)
    assert len(server.times) == 2


async def test_a_chunk_read_ahead_is_dropped_if_an_operator_ends_the_snapshot() -> None:
    server = Counting()
    scope = snapshots(server)
    await scope.prefetch(TIME)
    assert ordered(scope, scope.cancel()) == ""
    (rows,) = await scope.read(TIME, briefly=False)
    assert rows.request
    assert await scope.read(TIME, briefly=False) == []


async def test_a_chunk_read_ahead_is_read_again_after_a_failure() -> None:
    server = Counting()
    scope = snapshots(server)
    server.failing = True
    await scope.prefetch(TIME)
    server.failing = False
    assert await read(scope, TIME) == (1, TIME)


async def test_nothing_is_read_ahead_of_a_limit() -> None:
    """A pace, a pause or an order decides when, or whether, the next chunk is read."""
    server = Counting()
    scope = snapshots(server, documents_per_second=0.01)
    assert await read(scope, TIME) == (1, TIME)
    await scope.prefetch(TIME)
    paused = snapshots(server)
    assert ordered(paused, paused.pause(paused=True)) == ""
    await paused.prefetch(TIME)
    assert server.times == [TIME]


@pytest.mark.parametrize("time", [Timestamp(9, 4), Timestamp(8, 9)])
async def test_rows_wait_until_the_stream_reaches_the_servers_time_at_the_start(
    time: Timestamp,
) -> None:
    """A run that continues a snapshot reads no row as of an earlier time than the run before it."""
    scope = snapshots(Counting())
    with against_hanging():
        await scope.ready()
    with pytest.raises(TimeUnavailable):
        await scope.read(time, briefly=False)
    assert await read(scope, NOW) == (1, NOW)


@pytest.mark.parametrize(
    ("stored", "had"),
    [
        (StoredRows("id", ended=True), {"lake": 1}),
        (StoredRows("id"), {}),
        (StoredRows("another", ended=True), {}),
    ],
)
async def test_a_destination_that_has_the_end_has_every_row(
    stored: StoredRows, had: dict[str, int]
) -> None:
    """Of that snapshot, so they do not come to it again; the checkpoint may lag behind it."""
    (rows,) = await snapshots(Counting(), {"lake": stored}).read(TIME, briefly=False)
    assert len(rows.batch) == 1
    assert rows.already_stored == had


async def test_a_handler_that_was_further_keeps_its_progress_until_the_rows_pass_it() -> None:
    """A stop, or a course of its own, begins with that: no row comes to it again."""
    server, last = Counting(), DocumentId(bson.encode({"_id": 5}))
    own = RangeProgress(UUID, "shop", "c", 9, scanned=5, documents=5, last=last)
    scope = snapshots(server, {"audit": StoredRows("id", {UUID: last}, ranges={UUID: own})})

    async def progress() -> tuple[RangeProgress, RangeProgress]:
        (rows,) = await scope.read(TIME, briefly=False)
        audit, count = rows.own["audit"], len(rows.batch)
        return audit(count).ranges[UUID], rows.progress(count).ranges[UUID]

    audit, others = await progress()
    assert (audit, others.scanned) == (own, 1)
    assert ordered(scope, scope.pause(paused=True)) == ""
    assert (await progress())[0] == own, "nor does an order set it back"
    assert ordered(scope, scope.pause(paused=False)) == ""
    assert (await progress())[0] == own
    server.passed = True
    audit, others = await progress()
    assert audit == others
