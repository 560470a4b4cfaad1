"""Faults of servers, and changes of collections, in the middle of a snapshot."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff
from tailrace.model.snapshot import RangeState, SnapshotMode
from tailrace.snapshot.options import SnapshotOptions
from tests.guards import against_hanging
from tests.mongod import ReplicaSet
from tests.orders import QUICK
from tests.snapshots import Copy, Recorder, Scene, behind_gap, fold
from tests.writers import Writers, mixed_ids

SLOW = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=1000)

PASSING = (11601, 202, 279, 290, 365, 8, 1, 24, 16500, 8000)


def fill(scene: Scene, *names: str, count: int = 400) -> None:
    for name in names:
        scene.db[name].insert_many([{"_id": each, "v": 1} for each in mixed_ids(count)])


async def in_mid_copy(copy: Copy, scene: Scene, change: Callable[[], Any]) -> None:
    """Makes a change during the copy; returns when everything is handled."""
    async with copy.run():
        await copy.until_rows(100)
        assert not copy.is_done
        await anyio.to_thread.run_sync(change)
        await copy.until_done()
        await copy.until_handled(scene.now())


def without(state: dict[bytes, bytes], name: str) -> dict[bytes, bytes]:
    """The remaining documents after a collection is dropped."""
    mark = b"\x02coll\0" + (len(name) + 1).to_bytes(4, "little") + name.encode() + b"\0"
    return {key: value for key, value in state.items() if mark not in key}


async def test_the_snapshot_of_a_dropped_collection_ends(scene: Scene) -> None:
    fill(scene, "a", "b")
    copy = scene.copy(options=SLOW)
    await in_mid_copy(copy, scene, scene.db.a.drop)
    assert copy.saved is not None
    states = {each.collection: each.state for each in copy.saved.ranges.values()}
    assert states == {"a": RangeState.DROPPED, "b": RangeState.DONE}
    held = without(fold(copy.recorder.events), "a")
    assert held == scene.source("b")


async def test_a_renamed_collection_goes_on_under_its_new_name(scene: Scene) -> None:
    fill(scene, "a", "b")
    copy = scene.copy(options=SLOW)
    await in_mid_copy(copy, scene, lambda: scene.db.a.rename("c"))
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "rename")
    assert {str(row.ns) for row in events[:at] if row.full_document} >= {f"{scene.database}.a"}
    after = [row for row in events[at:] if row.operation_type == "read"]
    assert {str(row.ns) for row in after} <= {f"{scene.database}.c", f"{scene.database}.b"}
    assert sum(each.operation_type == "read" for each in events) == 800


async def test_a_recreated_collection_is_read_too(scene: Scene) -> None:
    fill(scene, "a", "b")

    def change() -> None:
        scene.db.a.drop()
        scene.db.a.insert_many([{"_id": n, "v": "again"} for n in range(10)])
        scene.db.new.insert_one({"_id": 1})

    copy = scene.copy(options=SLOW)
    await in_mid_copy(copy, scene, change)
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "drop")
    state = fold(events[at:], without(fold(events[:at]), "a"))
    assert state == scene.source("a", "b", "new")
    names = [row.ns.coll for row in events[at:] if row.operation_type == "read" and row.ns]
    assert (names.count("a"), names.count("new")) == (10, 0)


LEAVE: dict[str, Callable[[Any], Any]] = {
    "dropped": lambda database: database.a.drop(),
    "renamed": lambda database: database.a.rename("b"),
    "renamed to another database": lambda database: database.client.admin.command(
        "renameCollection", f"{database.name}.a", to=f"{database.name}-2.a"
    ),
    "the database dropped": lambda database: database.client.drop_database(database.name),
}


@pytest.mark.parametrize("how", LEAVE)
async def test_the_collection_of_its_own_scope_leaves(scene: Scene, how: str) -> None:
    """The stream restarts after the invalidate, and has the new collection under the old name.

    The new one is read too, unless the snapshot ended before it was there; it may be read while it
    is still empty.
    """
    fill(scene, "a")

    def change() -> None:
        LEAVE[how](scene.db)
        scene.db.a.insert_one({"_id": 1, "v": "again"})

    copy = scene.copy("a", options=SLOW)
    await in_mid_copy(copy, scene, change)
    scene.client.drop_database(f"{scene.database}-2")
    assert copy.recorder.count("invalidate") == 1
    assert copy.saved is not None
    left, *others = copy.saved.ranges.values()
    assert left.state is RangeState.DROPPED
    assert [each.state for each in others] in ([], [RangeState.DONE])
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "invalidate")
    reads = sum(event.operation_type == "read" for event in events[at:])
    assert reads == sum(each.documents for each in others) <= 1
    assert fold(events[at:]) == scene.source("a")


async def test_indexes_and_options_may_change_in_mid_copy(scene: Scene) -> None:
    """Nothing can be read as of the change (246) until the stream has reached it."""
    fill(scene, "a")

    def change() -> None:
        scene.db.a.create_index("v")
        scene.db.command({"collMod": "a", "validator": {"v": {"$exists": True}}})
        scene.db.a.drop_index("v_1")

    copy = scene.copy("a", options=SLOW)
    await in_mid_copy(copy, scene, change)
    assert fold(copy.recorder.events) == scene.source("a")
    assert len(copy.recorder.rows) == 400


async def test_a_chunk_that_fails_is_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each code in turn, of chunks of the same copy."""
    monkeypatch.setattr("tailrace.snapshot.snapshots._BACKOFF", Backoff(0.01, 0.01))
    fill(scene, "a", count=600)
    copy = Copy(scene.server.uri + QUICK, Scope("s", scene.database, "a"), options=SLOW)
    with capture_logs() as logs:
        async with copy.run():
            for code in (239, 246, 11602, 237, 43, 50, 91, 112, *PASSING):
                scene.server.fail("find", 2, errorCode=code)  # a driver may try one again
                message = f"code {code}"
                await copy.until(lambda: any(message in log.get("error", "") for log in logs))  # noqa: B023
                await copy.until_rows(1)
            await copy.until_done()
            await copy.until_handled(scene.now())
    assert fold(copy.recorder.events) == scene.source("a")
    assert len(copy.recorder.rows) == 600
    assert copy.watcher.status.counts.restarts == 0


@pytest.mark.parametrize("command", ["find", "listCollections"])
async def test_an_error_that_passes_does_not_cancel_an_operators_snapshot(
    scene: Scene, command: str
) -> None:
    """Each code in turn, at the begin of another snapshot of one scope."""
    fill(scene, "a", count=20)
    copy = scene.copy("a", options=replace(SLOW, initial=False))
    async with copy.run():
        for number, code in enumerate(PASSING, start=1):
            scene.server.fail(command, 2, errorCode=code)
            assert copy.ordered(copy.snapshots.start()) == ""
            await copy.until(lambda count=number: copy.recorder.count("snapshotEnd") == count)
    assert len(copy.recorder.rows) == 20 * len(PASSING)


async def test_a_chunk_whose_connection_is_lost_is_read_again(scene: Scene) -> None:
    fill(scene, "a")
    copy = scene.copy("a", options=SLOW)
    await in_mid_copy(copy, scene, lambda: scene.server.fail("find", 1, closeConnection=True))
    assert fold(copy.recorder.events) == scene.source("a")
    assert len(copy.recorder.rows) == 400


async def test_a_refusal_halts_the_scope(scene: Scene) -> None:
    fill(scene, "a")
    copy = scene.copy("a", options=SLOW)
    async with copy.run():
        await copy.until_rows(50)
        scene.server.fail("find", 1, errorCode=2)
        with against_hanging():
            while copy.watcher.status.state.value != "halted":  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert "correct the scope's snapshot" in copy.watcher.status.reason


def step_down(replica_set: ReplicaSet) -> None:
    replica_set.step_down(5)


def kill_primary(replica_set: ReplicaSet) -> None:
    member = replica_set.primary()
    replica_set.stop_member(member, signal.SIGKILL)
    replica_set.primary()
    replica_set.start_member(member)


@pytest.mark.parametrize("fault", [step_down, kill_primary])
async def test_elections_in_mid_copy_repeat_no_row(
    replica_set: ReplicaSet, database: str, fault: Callable[[ReplicaSet], None]
) -> None:
    """Only majority-committed documents are read; no row comes twice."""
    ids = mixed_ids(900)
    with replica_set.client(w="majority") as client:
        scene = Scene(replica_set, client, database)
        scene.db.a.insert_many([{"_id": each} for each in ids[:600]])
        options = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=200)
        copy = Copy(replica_set.uri + QUICK, Scope("s", database, "a"), Recorder(), options)
        with Writers(client, database, ["a"], ids, 1, pause=0.01, behind=copy.is_behind):
            async with copy.run():
                for _ in range(2):
                    await copy.until_rows(100)
                    await anyio.to_thread.run_sync(fault, replica_set)
                await copy.until_done()
        async with copy.run():
            await copy.until_handled(scene.now())
        assert fold(copy.recorder.events) == scene.source("a")
        keys = [row.key for row in copy.recorder.rows]
        assert len(keys) == len(set(keys))


async def test_documents_are_read_from_a_secondary(replica_set: ReplicaSet, database: str) -> None:
    ids = mixed_ids(900)
    with replica_set.client() as client:
        scene = Scene(replica_set, client, database)
        scene.db.a.insert_many([{"_id": each} for each in ids[:600]])
        options = SnapshotOptions(
            initial=True, chunk_documents=20, documents_per_second=400, read_preference="secondary"
        )
        copy = scene.copy("a", Recorder(), options)
        with Writers(client, database, ["a"], ids, 1, pause=0.01, behind=copy.is_behind):
            async with copy.run():
                await copy.until_done()
        async with copy.run():
            await copy.until_handled(scene.now())
        assert fold(copy.recorder.events) == scene.source("a")


@pytest.fixture
def forgetful(small: ReplicaSet, database: str) -> Iterator[Scene]:
    with small.client() as client:
        scene = Scene(small, client, database)
        scene.db.a.insert_many([{"_id": each, "v": 1} for each in mixed_ids(600)])
        yield scene
        client.drop_database(database)


async def test_a_history_lost_in_mid_copy_begins_another_one(forgetful: Scene) -> None:
    documents = forgetful.db.a
    copy = forgetful.copy("a", options=replace(SLOW, after_gap=True))
    async with copy.run():
        await copy.until_rows(100)
    documents.delete_many({"_id": {"$type": "string"}})
    documents.update_many({"_id": {"$type": "double"}}, {"$set": {"v": 2}})
    documents.insert_one({"_id": "in the gap"})
    await anyio.to_thread.run_sync(forgetful.server.forget_history)
    async with copy.run():
        await copy.until_done()
        await copy.until_handled(forgetful.now())
    assert copy.saved is not None
    assert copy.saved.mode is SnapshotMode.GAP
    assert copy.recorder.count("snapshotBegin") == 2
    assert behind_gap(copy.recorder.events) == forgetful.source("a")


async def test_the_oplog_may_be_shorter_than_the_copy(forgetful: Scene) -> None:
    """The stream is read throughout, and only the stream needs the oplog."""
    copy = forgetful.copy("a", options=SLOW)
    async with copy.run():
        await copy.until_rows(50)
        copy.ordered(copy.snapshots.pause(paused=True))
        forgetful.db.a.delete_many({"v": 1, "_id": {"$type": "string"}})
        await anyio.to_thread.run_sync(forgetful.server.forget_history)
        copy.ordered(copy.snapshots.pause(paused=False))
        await copy.until_done()
        await copy.until_handled(forgetful.now())
    assert fold(copy.recorder.events) == forgetful.source("a")
