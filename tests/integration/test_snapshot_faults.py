"""Faults of servers, and changes of collections, in the middle of a snapshot."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.model import Scope
from tailrace.model.failure_policy import Backoff
from tailrace.model.snapshot import RangeState, SnapshotMode
from tailrace.snapshot.snapshots import SnapshotOptions
from tests.mongod import Client, ReplicaSet
from tests.orders import QUICK
from tests.snapshots import Copy, Recorder, Writers, behind_gap, fold, mixed_ids, now, source

SLOW = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=1000)

PASSING = (11601, 202, 279, 290, 365, 8, 1, 24, 16500, 8000)


@pytest.fixture
def client(mongod: ReplicaSet, database: str) -> Any:
    with mongod.client() as made:
        yield made


def fill(client: Client, database: str, *names: str, count: int = 400) -> None:
    for name in names:
        client[database][name].insert_many([{"_id": each, "v": 1} for each in mixed_ids(count)])


async def in_mid_copy(copy: Copy, client: Client, change: Callable[[], Any]) -> None:
    """Makes a change during the copy; returns when everything is handled."""
    async with copy.run():
        await copy.until_rows(100)
        assert not copy.is_done
        await anyio.to_thread.run_sync(change)
        await copy.until_done()
        await copy.until_handled(now(client))


def without(state: dict[bytes, bytes], name: str) -> dict[bytes, bytes]:
    """The remaining documents after a collection is dropped."""
    mark = b"\x02coll\0" + (len(name) + 1).to_bytes(4, "little") + name.encode() + b"\0"
    return {key: value for key, value in state.items() if mark not in key}


async def test_the_snapshot_of_a_dropped_collection_ends(
    mongod: ReplicaSet, client: Client, database: str
) -> None:
    fill(client, database, "a", "b")
    copy = Copy(mongod.uri, Scope("s", database), options=SLOW)
    await in_mid_copy(copy, client, client[database].a.drop)
    assert copy.saved is not None
    states = {each.collection: each.state for each in copy.saved.ranges.values()}
    assert states == {"a": RangeState.DROPPED, "b": RangeState.DONE}
    held = without(fold(copy.recorder.events), "a")
    assert held == source(client, database, ["b"])


async def test_a_renamed_collection_goes_on_under_its_new_name(
    mongod: ReplicaSet, client: Client, database: str
) -> None:
    fill(client, database, "a", "b")
    copy = Copy(mongod.uri, Scope("s", database), options=SLOW)
    await in_mid_copy(copy, client, lambda: client[database].a.rename("c"))
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "rename")
    assert {str(row.ns) for row in events[:at] if row.full_document} >= {f"{database}.a"}
    after = [row for row in events[at:] if row.operation_type == "read"]
    assert {str(row.ns) for row in after} <= {f"{database}.c", f"{database}.b"}
    assert sum(each.operation_type == "read" for each in events) == 800


async def test_a_recreated_collection_is_read_too(
    mongod: ReplicaSet, client: Client, database: str
) -> None:
    fill(client, database, "a", "b")

    def change() -> None:
        client[database].a.drop()
        client[database].a.insert_many([{"_id": n, "v": "again"} for n in range(10)])
        client[database].new.insert_one({"_id": 1})

    copy = Copy(mongod.uri, Scope("s", database), options=SLOW)
    await in_mid_copy(copy, client, change)
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "drop")
    state = fold(events[at:], without(fold(events[:at]), "a"))
    assert state == source(client, database, ["a", "b", "new"])
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
async def test_the_collection_of_its_own_scope_leaves(
    mongod: ReplicaSet, client: Client, database: str, how: str
) -> None:
    """The stream restarts after the invalidate, and has the new collection under the old name.

    The new one is read too, unless the snapshot ended before it was there.
    """
    fill(client, database, "a")

    def change() -> None:
        LEAVE[how](client[database])
        client[database].a.insert_one({"_id": 1, "v": "again"})

    copy = Copy(mongod.uri, Scope("s", database, "a"), options=SLOW)
    await in_mid_copy(copy, client, change)
    client.drop_database(f"{database}-2")
    assert copy.recorder.count("invalidate") == 1
    assert copy.saved is not None
    states = [each.state for each in copy.saved.ranges.values()]
    assert states[0] is RangeState.DROPPED
    assert states[1:] in ([], [RangeState.DONE])
    events = copy.recorder.events
    at = next(n for n, event in enumerate(events) if event.operation_type == "invalidate")
    assert sum(event.operation_type == "read" for event in events[at:]) == len(states[1:])
    assert fold(events[at:]) == source(client, database, ["a"])


async def test_indexes_and_options_may_change_in_mid_copy(
    mongod: ReplicaSet, client: Client, database: str
) -> None:
    """Nothing can be read as of the change (246) until the stream has reached it."""
    fill(client, database, "a")

    def change() -> None:
        client[database].a.create_index("v")
        client[database].command({"collMod": "a", "validator": {"v": {"$exists": True}}})
        client[database].a.drop_index("v_1")

    copy = Copy(mongod.uri, Scope("s", database, "a"), options=SLOW)
    await in_mid_copy(copy, client, change)
    assert fold(copy.recorder.events) == source(client, database, ["a"])
    assert len(copy.recorder.rows) == 400


async def test_a_chunk_that_fails_is_read_again(
    mongod: ReplicaSet, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each code in turn, of chunks of the same copy."""
    monkeypatch.setattr("tailrace.snapshot.snapshots._BACKOFF", Backoff(0.01, 0.01))
    fill(client, database, "a", count=600)
    copy = Copy(mongod.uri + QUICK, Scope("s", database, "a"), options=SLOW)
    with capture_logs() as logs:
        async with copy.run():
            for code in (239, 246, 11602, 237, 43, 50, 91, 112, *PASSING):
                mongod.fail("find", 2, errorCode=code)  # a driver may try one again
                told = f"code {code}"
                await copy.until(lambda: any(told in log.get("error", "") for log in logs))  # noqa: B023
                await copy.until_rows(1)
            await copy.until_done()
            await copy.until_handled(now(client))
    assert fold(copy.recorder.events) == source(client, database, ["a"])
    assert len(copy.recorder.rows) == 600
    assert copy.watcher.status.restarts == 0


@pytest.mark.parametrize("command", ["find", "listCollections"])
async def test_an_error_that_passes_does_not_cancel_an_operators_snapshot(
    mongod: ReplicaSet, client: Client, database: str, command: str
) -> None:
    """Each code in turn, at the begin of another snapshot of one scope."""
    fill(client, database, "a", count=20)
    copy = Copy(mongod.uri, Scope("s", database, "a"), options=replace(SLOW, initial=False))
    async with copy.run():
        for number, code in enumerate(PASSING, start=1):
            mongod.fail(command, 2, errorCode=code)
            assert copy.snapshots.start() == ""
            await copy.until(lambda count=number: copy.recorder.count("snapshotEnd") == count)
    assert len(copy.recorder.rows) == 20 * len(PASSING)


async def test_a_chunk_whose_connection_is_lost_is_read_again(
    mongod: ReplicaSet, client: Client, database: str
) -> None:
    fill(client, database, "a")
    copy = Copy(mongod.uri, Scope("s", database, "a"), options=SLOW)
    await in_mid_copy(copy, client, lambda: mongod.fail("find", 1, closeConnection=True))
    assert fold(copy.recorder.events) == source(client, database, ["a"])
    assert len(copy.recorder.rows) == 400


async def test_a_refusal_halts_the_scope(mongod: ReplicaSet, client: Client, database: str) -> None:
    fill(client, database, "a")
    copy = Copy(mongod.uri, Scope("s", database, "a"), options=SLOW)
    async with copy.run():
        await copy.until_rows(50)
        mongod.fail("find", 1, errorCode=13)
        with anyio.fail_after(20):
            while copy.watcher.status.state.value != "halted":  # noqa: ASYNC110
                await anyio.sleep(0.01)
    assert "privilege" in copy.watcher.status.reason


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
        client[database].a.insert_many([{"_id": each} for each in ids[:600]])
        options = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=200)
        uri = replica_set.uri + QUICK
        copy = Copy(uri, Scope("s", database, "a"), Recorder(), options)
        with Writers(client, database, ["a"], ids, 1, pause=0.01):
            async with copy.run():
                for _ in range(2):
                    await copy.until_rows(100)
                    await anyio.to_thread.run_sync(fault, replica_set)
                await copy.until_done()
        async with copy.run():
            await copy.until_handled(now(client))
        assert fold(copy.recorder.events) == source(client, database, ["a"])
        keys = [row.key for row in copy.recorder.rows]
        assert len(keys) == len(set(keys))


async def test_documents_are_read_from_a_secondary(replica_set: ReplicaSet, database: str) -> None:
    ids = mixed_ids(900)
    with replica_set.client() as client:
        client[database].a.insert_many([{"_id": each} for each in ids[:600]])
        options = SnapshotOptions(
            initial=True, chunk_documents=20, documents_per_second=400, read_preference="secondary"
        )
        copy = Copy(replica_set.uri, Scope("s", database, "a"), Recorder(), options)
        with Writers(client, database, ["a"], ids, 1, pause=0.01):
            async with copy.run():
                await copy.until_done()
        async with copy.run():
            await copy.until_handled(now(client))
        assert fold(copy.recorder.events) == source(client, database, ["a"])


async def test_a_history_lost_in_mid_copy_begins_another_one(tmp_path: Path) -> None:
    flags = {"--oplogSize": "1", "--syncdelay": "1"}
    server = ReplicaSet(tmp_path / "small", flags=flags)
    options = replace(SLOW, after_gap=True)
    try:
        with server.client() as client:
            client.shop.a.insert_many([{"_id": each, "v": 1} for each in mixed_ids(600)])
            copy = Copy(server.uri, Scope("s", "shop", "a"), options=options)
            async with copy.run():
                await copy.until_rows(100)
            client.shop.a.delete_many({"_id": {"$type": "string"}})
            client.shop.a.update_many({"_id": {"$type": "double"}}, {"$set": {"v": 2}})
            client.shop.a.insert_one({"_id": "in the gap"})
            await anyio.to_thread.run_sync(server.forget_history)
            async with copy.run():
                await copy.until_done()
                await copy.until_handled(now(client))
            assert copy.saved is not None
            assert copy.saved.mode is SnapshotMode.GAP
            assert copy.recorder.count("snapshotBegin") == 2
            assert behind_gap(copy.recorder.events) == source(client, "shop", ["a"])
    finally:
        server.stop()


async def test_an_oplog_shorter_than_the_copy(tmp_path: Path) -> None:
    """The stream is read throughout, and only the stream needs the oplog."""
    flags = {"--oplogSize": "1", "--syncdelay": "1"}
    server = ReplicaSet(tmp_path / "small", flags=flags)
    try:
        with server.client() as client:
            client.shop.a.insert_many([{"_id": each, "v": 1} for each in mixed_ids(600)])
            copy = Copy(server.uri, Scope("s", "shop", "a"), options=SLOW)
            async with copy.run():
                await copy.until_rows(50)
                copy.snapshots.pause(paused=True)
                client.shop.a.delete_many({"v": 1, "_id": {"$type": "string"}})
                await anyio.to_thread.run_sync(server.forget_history)
                copy.snapshots.pause(paused=False)
                await copy.until_done()
                await copy.until_handled(now(client))
            assert fold(copy.recorder.events) == source(client, "shop", ["a"])
    finally:
        server.stop()
