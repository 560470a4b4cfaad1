"""Changes and server faults while a certain chunk is being read or handled."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.engine.status.lag import MOST_LAG_SECONDS
from tailrace.engine.status.status import Status
from tailrace.errors import CommandFailed
from tailrace.event import ChangeEvent
from tailrace.model import Scope, SnapshotProgress
from tailrace.snapshot import reading
from tailrace.snapshot.chunk import read_chunk
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.plan import plan
from tests.daemon import until
from tests.guards import against_hanging
from tests.mongod import ReplicaSet
from tests.mongod.operations import operations
from tests.snapshots import Copy, Recorder, Scene, fold, source
from tests.writers import Writers, mixed_ids

SLOW = SnapshotOptions(initial=True, chunk_documents=40, documents_per_second=400)


# --- what happens to a document --------------------------------------------------------------


def change_it(documents: Any) -> None:
    documents.replace_one({"_id": 50}, {"v": "new"})


def delete_it(documents: Any) -> None:
    documents.delete_one({"_id": 50})


def make_it_again(documents: Any) -> None:
    documents.delete_one({"_id": 50})
    documents.insert_one({"_id": 50, "v": "again"})


def move_it_ahead(documents: Any) -> None:
    """Into a chunk that is read later."""
    documents.delete_one({"_id": 50})
    documents.insert_one({"_id": 151, "v": "moved"})


def move_it_back(documents: Any) -> None:
    """Into a chunk that was read earlier."""
    documents.delete_one({"_id": 150})
    documents.insert_one({"_id": 1, "v": "moved"})


CHANGES = (change_it, delete_it, make_it_again, move_it_ahead, move_it_back)


@dataclass
class Holding(Recorder):
    """Holds the call that has the row of a certain document, until ``go_on`` is set."""

    held: anyio.Event = field(default_factory=anyio.Event)
    go_on: anyio.Event = field(default_factory=anyio.Event)

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        if any(of(each) == ("read", 50) for each in events):
            self.held.set()
            await self.go_on.wait()
        await super().on_events(events)


def of(event: ChangeEvent) -> tuple[str, Any]:
    return event.operation_type, (event.document_key or {}).get("_id")


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_while_the_handler_has_the_chunk_comes_after_the_row(
    scene: Scene, change: Callable[[Any], None]
) -> None:
    """The change comes after the row, as it happened after the chunk's time."""
    documents = scene.db.c
    documents.insert_many([{"_id": n, "v": "before"} for n in range(0, 200, 2)])
    holding = Holding()
    copy = scene.copy("c", holding, SLOW)
    async with copy.run():
        with against_hanging():
            await holding.held.wait()
        change(documents)
        holding.go_on.set()
        await copy.until_done()
        await copy.until_handled(scene.now())
    check(holding.events, scene)


async def test_little_is_read_ahead_of_a_handler(scene: Scene) -> None:
    """However much the byte budget would allow, because changes would wait for all of it."""
    scene.db.c.insert_many([{"_id": n} for n in range(400)])
    holding, options = Holding(), SnapshotOptions(initial=True, chunk_documents=10)
    copy = scene.copy("c", holding, options)
    async with copy.run():
        with against_hanging():
            await holding.held.wait()
        await anyio.sleep(0.5)
        assert copy.watcher.status.watermark is not None
        assert copy.watcher.status.watermark.events < 100
        holding.go_on.set()
        await copy.until_done()
    assert len(holding.rows) == 400


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_while_the_server_reads_the_chunk_comes_after_the_row(
    scene: Scene, change: Callable[[Any], None]
) -> None:
    """The chunk is as of its time, before the change."""
    documents = scene.db.c
    documents.insert_many([{"_id": n, "v": "before"} for n in range(0, 200, 2)])
    copy = scene.copy("c", options=SLOW)
    with held_finds(scene.server, f"{scene.database}.c") as release:
        async with copy.run():
            await anyio.to_thread.run_sync(until, lambda: waits(scene), "a read")
            change(documents)
            assert not copy.recorder.rows
            release()
            await copy.until_done()
            await copy.until_handled(scene.now())
    check(copy.recorder.events, scene)


def check(events: Sequence[ChangeEvent], scene: Scene) -> None:
    """The row shows the document before its change, and no deleted document comes back."""
    assert fold(events) == scene.source("c")
    named = [of(each) for each in events]
    at = named.index(("read", 50))
    assert events[at].full_document == {"_id": 50, "v": "before"}
    assert all(kind == "read" for kind, key in named[:at] if key is not None)
    changes = [n for n, each in enumerate(events) if "snapshot" not in each.id]
    assert changes[0] > at
    assert time(events[at]) < time(events[changes[0]])
    assert len(named) == len(set(named))


def time(event: ChangeEvent) -> Timestamp:
    assert event.cluster_time is not None
    return event.cluster_time


@contextmanager
def held_finds(server: ReplicaSet, namespace: str) -> Iterator[Callable[[], None]]:
    """Makes every ``find`` of a collection hang until the yielded function is called."""
    point = "waitInFindBeforeMakingBatch"
    server.fail_point(point, "alwaysOn", nss=namespace, shouldCheckForInterrupt=True)
    try:
        yield lambda: server.fail_point(point, "off")
    finally:
        server.fail_point(point, "off")


def waits(scene: Scene) -> bool:
    matching = {"ns": f"{scene.database}.c", "op": "query"}
    return any(
        each.get("failpointMsg") or "waitInFind" in each.get("msg", "")
        for each in operations(scene.client, matching, "failpointMsg", "msg")
    )


# --- what happens to the plan ----------------------------------------------------------------


async def test_a_collection_created_after_the_plan_is_included(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its changes may precede snapshotBegin; destinations would then remove its documents."""
    scene.db.c.insert_many([{"_id": n} for n in range(10)])
    plans = []

    async def plan_and_make(*given: Any) -> SnapshotProgress:
        plans.append(await plan(*given))
        if len(plans) == 1:
            scene.db.new.insert_one({"_id": 1})
        return plans[-1]

    monkeypatch.setattr("tailrace.snapshot.keys.plan", plan_and_make)
    copy = scene.copy(options=SLOW)
    async with copy.run():
        await copy.until_done()
    snapshots = [e.document["snapshot"] for e in copy.recorder.events if e.key is None]
    listed = [one["collections"] for one in snapshots if "id" in one]
    names = [sorted(each["coll"] for each in one) for one in listed]
    assert names == [["c", "new"]] * 2
    assert copy.recorder.count("read") == 11


async def test_nothing_is_read_while_the_stream_is_far_behind(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.db.c.insert_many([{"_id": n} for n in range(10)])
    lags = [MOST_LAG_SECONDS + 1]
    monkeypatch.setattr(Status, "read_lag", property(lambda _: lags[-1]))
    copy = scene.copy(options=SLOW)
    async with copy.run():
        for number in range(100, 103):
            scene.db.c.insert_one({"_id": number})
            await copy.until_handled(scene.now())
            await anyio.sleep(0.2)
        assert {event.operation_type for event in copy.recorder.events} == {"insert"}
        lags.append(0.0)
        await copy.until_done()
    assert fold(copy.recorder.events) == scene.source("c")


# --- what happens to the reads ---------------------------------------------------------------


async def test_a_chunk_whose_cursor_is_killed_is_read_again(scene: Scene) -> None:
    """The chunk takes several replies; no row is handed over before the chunk is read again."""
    scene.db.c.insert_many([{"_id": n} for n in range(99)])
    scene.db.c.insert_one({"_id": 99, "pad": "x" * (16 * 1024 * 1024 - 100)})
    copy = scene.copy(options=replace(SLOW, chunk_documents=400))
    # The stream's cursor has another namespace.
    scene.server.fail("getMore", 2, namespace=f"{scene.database}.c", errorCode=43)
    with capture_logs() as logs:
        async with copy.run():
            await copy.until_done()
    assert [of(row)[1] for row in copy.recorder.rows] == list(range(100))
    failed = [log["error"] for log in logs if log["event"] == "snapshot.chunk_failed"]
    assert failed
    assert all("CursorNotFound" in each for each in failed)


async def test_no_row_comes_twice_when_the_cursor_of_the_stream_is_killed(scene: Scene) -> None:
    """The stream resumes and the chunks continue; no row comes twice."""
    ids = mixed_ids(600)
    scene.db.c.insert_many([{"_id": each} for each in ids[:400]])
    copy = scene.copy("c", options=replace(SLOW))
    kill = partial(scene.server.kill_cursors, scene.database)
    with Writers(scene.client, scene.database, ["c"], ids, 3, pause=0.01, behind=copy.is_behind):
        async with copy.run():
            for _ in range(3):
                await copy.until_rows(60)
                with against_hanging():
                    while not await anyio.to_thread.run_sync(kill):  # noqa: ASYNC110 - the server's
                        await anyio.sleep(0.02)  # a stream that resumes just now has no cursor
            await copy.until_done()
    async with copy.run():
        await copy.until_handled(scene.now())
    assert fold(copy.recorder.events) == scene.source("c")
    keys = [row.key for row in copy.recorder.rows]
    assert len(keys) == len(set(keys))


async def test_a_chunk_whose_time_is_too_old_is_read_as_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk whose time is too old by then (239) is read as of a later time."""
    refused: set[int | None] = set()

    async def noting(*arguments: Any, **keywords: Any) -> Any:
        try:
            return await read_chunk(*arguments, **keywords)
        except CommandFailed as error:
            refused.add(error.code)
            raise

    monkeypatch.setattr(reading, "read_chunk", noting)
    server = ReplicaSet(tmp_path / "forgetful")
    try:
        with server.client() as client:
            client.shop.c.insert_many([{"_id": each, "v": 1} for each in mixed_ids(400)])
            client.admin.command("setParameter", 1, minSnapshotHistoryWindowInSeconds=0)
            copy = Copy(
                server.uri,
                Scope("s", "shop", "c"),
                options=replace(SLOW, chunk_documents=200),
                stream={"max_await_time_ms": 2000},
            )
            # The stream's time is that of its last reply, and none comes for two seconds.
            with Writers(client, "other", ["c"], range(50), 3, pause=0.02):
                async with copy.run():
                    await copy.until_done()
            assert refused == {239}
            assert fold(copy.recorder.events) == source(client, "shop", ["c"])
            assert len(copy.recorder.rows) == 400
    finally:
        server.stop()
