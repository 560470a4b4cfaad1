"""Faults of the destination ``mongodb``: refusals, kills, elections, cancellations."""

from typing import Any

import anyio
import pymongo
import pytest
from structlog.testing import capture_logs

from tailrace.destinations.mongodb.cluster import connect
from tailrace.destinations.mongodb.state import Copies
from tailrace.errors import ScopeHalted, Unavailable
from tailrace.event import Namespace
from tailrace.testing import Harness
from tests.daemon import Daemon, until
from tests.destinations.copies import following, halted, until_equal
from tests.destinations.mongodb import ROOT, Target, raw_documents
from tests.machine import free_port
from tests.mongod import ReplicaSet, Standalone
from tests.orders import QUICK, Orders


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_cluster_that_it_follows_is_refused_whatever_its_name(
    orders: Orders, target: Target, host: str
) -> None:
    uri = f"mongodb://{host}:{orders.server.ports[0]}/?directConnection=true"
    for scope, database in (({"collection": None}, orders.database), ({"database": None}, "x")):
        handler = {"uri": uri, "database": database}
        whole = {"database": orders.database, "collection": None} | scope
        run = following(orders, target, f"{host}{database}", scope=whole, handler=handler)
        run.start(ready=False)
        assert "leads to the same cluster" in halted(run)
        code, errors = run.refused("check", "--connect")
        assert code == 1
        (line,) = errors.splitlines()
        assert "leads to the same cluster" in line
    beside = following(
        orders, target, host, handler={"uri": uri, "database": f"{orders.database}_x"}
    )
    beside.start()
    orders.insert(1)
    with orders.server.client() as client:
        copy = client[f"{orders.database}_x"]
        until(lambda: copy.orders.count_documents({}) == 1, "the copy in another database")
        assert beside.stop() == 0
        client.drop_database(copy.name)


def test_a_standalone_server_is_refused_at_the_start_in_one_line(
    orders: Orders, target: Target, standalone: Standalone
) -> None:
    run = following(orders, target, handler={"uri": standalone.uri})
    run.start(ready=False)
    assert run.wait() == 2
    assert "is a standalone server, and transactions need a replica set" in run.log
    assert "Traceback" not in run.log


@pytest.mark.parametrize("failure", [{"errorCode": 11600}, {"closeConnection": True}], ids=str)
async def test_a_cluster_whose_id_cannot_be_read_for_a_moment_is_not_judged_by_its_name(
    target: Target, failure: dict[str, object]
) -> None:
    """Sets often have the same name: the handler would be halted as if it wrote to its source."""
    uri = target.server.uri_as(*ROOT)
    target.server.fail("replSetGetConfig", **failure)
    with pytest.raises(Unavailable):
        await connect(uri)
    cluster = await connect(uri)
    assert cluster.identity.unique
    await cluster.close()


async def test_processes_that_register_a_copy_at_the_same_time_do_not_refuse_one_another(
    target: Target,
) -> None:
    """Of two upserts with one ``_id``, the server may refuse the later one."""
    cluster = await connect(target.uri)
    try:
        copies = Copies(cluster, target.database)
        for number in range(10):
            copy, source = Namespace(target.database, f"c{number}"), Namespace("shop", f"c{number}")
            async with anyio.create_task_group() as processes:
                for _ in range(8):
                    processes.start_soon(copies.register, copy, source)
            with pytest.raises(ScopeHalted, match="would share the copy"):
                await copies.register(copy, Namespace("shop", "other"))
    finally:
        await cluster.close()


def test_a_second_daemon_with_another_store_is_kept_out(orders: Orders, target: Target) -> None:
    """Both have the epoch 1: the position that one of them moves is not what the other expects."""
    runs = [following(orders, target, name).start() for name in ("one", "two")]
    fenced: list[Daemon] = []
    for number in range(500):
        orders.insert(number)
        fenced = [run for run in runs if run.logged("scope.halted")]
        if fenced:
            break
    (one,) = fenced
    assert "another process writes there" in halted(one)
    until_equal(orders, target)


def test_a_transaction_of_a_killed_process_does_not_hold_up_the_next_one(
    orders: Orders, target: Target
) -> None:
    """The server would end it only after transactionLifetimeLimitSeconds, 300 in these tests."""
    run = following(orders, target).start()
    orders.insert(1)
    until_equal(orders, target)
    assert run.stop() == 0
    client: Any = pymongo.MongoClient(target.uri)
    with client, client.start_session() as session:
        positions = client[target.database].tailrace_positions
        positions.update_one({}, {"$set": {"session": session.session_id}})
        session.start_transaction()
        positions.update_one({}, {"$set": {"position": None}}, session=session)
        run = following(orders, target).start()
        orders.insert(2)
        until_equal(orders, target)
        assert run.stop() == 0


def test_elections_and_a_killed_primary_in_mid_transaction_lose_nothing(
    replica_set: ReplicaSet, orders: Orders, target: Target
) -> None:
    uri = replica_set.uri + QUICK
    handler = {"uri": uri, "database": target.database, "batch_size": 20}
    run = following(orders, target, handler=handler).start()
    with orders.load() as load:
        load.more(50)
        replica_set.fail("commitTransaction", closeConnection=True)
        load.more(50)
        replica_set.fail("update", errorCode=112, errorLabels=["TransientTransactionError"])
        load.more(50)
        replica_set.step_down()
        load.more(50)
        replica_set.stop_member(replica_set.primary())
        load.more(50)

    def equal() -> bool:
        source = raw_documents(orders.server, orders.database, "orders")
        return source == raw_documents(replica_set, target.database, "orders")

    until(equal, "that the copy equals the source")
    assert run.stop() == 0
    assert not run.logged("event.dead_lettered")


@pytest.mark.parametrize("command", ["update", "insert", "commitTransaction"])
def test_a_call_that_is_cancelled_is_repeated_once_whatever_became_of_its_transaction(
    orders: Orders, outbox: Target, command: str
) -> None:
    """The server is slow with one command, and the handler's time limit cancels the call."""
    handler = {"timeout_seconds": 1, "batch_size": 10, "retry": {"attempts": 5}}
    run = following(orders, outbox, handler=handler).start()
    orders.insert(0)
    with outbox.client() as client:
        events = client[outbox.database].events
        until(lambda: events.count_documents({}) == 1, "the first event")
        outbox.server.fail(command, blockConnection=True, blockTimeMS=4000)
        orders.insert(*range(1, 41))
        until(lambda: events.count_documents({}) >= 41, "the others")
        until(lambda: run.logged("handler.failed"), "the attempt that was cancelled")
        assert run.stop() == 0
        found = [each["documentKey"]["_id"] for each in events.find().sort(["clusterTime", "_id"])]
        assert found == list(range(41))
        assert client[outbox.database].tailrace_positions.count_documents({}) == 1


def test_a_batch_may_be_larger_than_a_command_and_than_an_entry_of_the_oplog(
    orders: Orders, target: Target
) -> None:
    handler = {"linger_seconds": 1, "batch_bytes": 64 * 1024 * 1024}
    run = following(orders, target, handler=handler).start()
    for number in range(4):
        orders.insert(number, text="x" * 7_000_000)
    until_equal(orders, target)
    assert run.stop() == 0
    assert not run.logged("handler.failed")


def test_a_collection_that_is_renamed_during_a_further_snapshot_is_swept_under_its_new_name(
    orders: Orders, target: Target
) -> None:
    slow = {"documents_per_second": 100, "chunk_documents": 20}
    scope = {"collection": None, "snapshot": slow}
    run = following(orders, target, scope=scope, http={"port": free_port()}).start()
    orders.insert(*range(300))
    until_equal(orders, target)
    with orders.server.client() as client, target.client() as copies:
        copy = copies[target.database]
        copy.orders.insert_many([{"_id": number} for number in range(1000, 1300)])
        run.command("snapshot", "start", "orders")
        until(lambda: copy.tailrace_unseen.count_documents({}) < 550, "some rows")
        client[orders.database].orders.rename("renamed")
        until_equal(orders, target, "renamed")
        until(lambda: not copy.tailrace_unseen.count_documents({}), "an empty list")
    assert run.stop() == 0


async def test_a_copy_that_is_set_back_in_a_run_gets_what_it_lacks(target: Target) -> None:
    """A restored one from its position on; an emptied one by a snapshot."""
    names = ("orders", "tailrace_positions")
    with target.client() as client:
        copy = client[target.database]

        def ids() -> list[int]:
            return sorted(each["_id"] for each in copy.orders.find())

        async with Harness(target.handler) as harness:
            harness.changes.insert({"_id": 1})
            await harness.handled()
            backup = {name: list(copy[name].find()) for name in names}
            harness.changes.insert({"_id": 2})
            await harness.saved()
            for name, documents in backup.items():
                copy[name].delete_many({})
                copy[name].insert_many(documents)
            harness.changes.insert({"_id": 3})
            with capture_logs() as logs:
                await harness.handled()
            assert ids() == [1, 2, 3]
            assert len([each for each in logs if "its destination was restored" in str(each)]) == 1
            for name in names:
                copy[name].delete_many({})
            harness.changes.insert({"_id": 4})
            with capture_logs() as logs:
                await harness.handled()
            assert ids() == [4]
            assert any("'tailrace snapshot start" in str(each) for each in logs)
            await harness.snapshot()
        assert ids() == [1, 2, 3, 4]
