"""What is special about the destination ``mongodb``: a mirror, or an outbox, in another cluster."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from struct import pack
from typing import Any

import bson
import pymongo
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from tailrace.event.bson import encoded
from tests.daemon import Daemon, until
from tests.destinations.mongodb import Target, raw_documents
from tests.machine import free_port
from tests.mongod import ReplicaSet, Standalone
from tests.orders import QUICK, Orders
from tests.snapshots import mixed_ids


@pytest.fixture
def target(served: Callable[[str], Any], database: str) -> Iterator[Target]:
    made = served("mongodb")(database)
    yield made
    made.start()


@pytest.fixture
def outbox(served: Callable[[str], Any], database: str) -> Iterator[Target]:
    made = served("mongodb")(database, log=True)
    yield made
    made.start()


def following(orders: Orders, target: Target, directory: str = "run", **more: Any) -> Daemon:
    """A daemon whose scope is the collection ``orders``, or more with other keys of the scope."""
    handler = {
        **target.handler,
        "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
        **more.pop("handler", {}),
    }
    return orders.daemon(
        directory,
        scope={"full_document": "lookup", **more.pop("scope", {})},
        handlers={"copy": handler},
        routes=[{"scope": "orders", "handlers": ["copy"]}],
        **more,
    )


def halted(run: Daemon) -> str:
    """Why the only scope halts; the process ends with it."""
    assert run.wait() == 1
    (found,) = run.logged("scope.halted")
    return str(found["error"])


def until_equal(orders: Orders, target: Target, collection: str = "orders") -> list[bytes]:
    """Until the copy has the same bytes as the source."""

    def equal() -> bool:
        source = raw_documents(orders.server, orders.database, collection)
        return source == target.raw(collection)

    until(equal, "that the copy equals the source")
    return target.raw(collection)


def _element(kind: int, name: bytes, value: bytes = b"") -> bytes:
    return b"%c%b\0%b" % (kind, name, value)


_TEXT = b"\x02\0\0\0a\0"
ODD = {
    "repeated names": _element(16, b"a", pack("<i", 1)) + _element(16, b"a", pack("<i", 2)),
    "dollars": _element(16, b"$set", pack("<i", 1)) + _element(16, b"$set", pack("<i", 2)),
    "dots": b"".join(_element(10, name) for name in (b"a.b", b".", b"", b"0", b"$a.b")),
    "a zero time": _element(17, b"t", bytes(8)) + _element(10, b"t"),
    "old types": _element(6, b"u")
    + _element(14, b"s", _TEXT)
    + _element(12, b"p", _TEXT + bytes(12)),
    "broken text": _element(2, b"s", b"\x03\0\0\0\xff\xfe\0"),
    "odd numbers": _element(1, b"d", pack("<d", -0.0)) + _element(1, b"n", b"\1" * 6 + b"\xf8\x7f"),
    "dates": _element(9, b"d", pack("<q", 2**62)) + _element(9, b"e", pack("<q", -(2**62))),
    "keys": _element(255, b"min") + _element(127, b"max"),
    "code": _element(15, b"c", pack("<i", 15) + _TEXT + encoded(b"")) + _element(13, b"j", _TEXT),
    "regex": _element(11, b"r", b"a.*\0ix\0"),
    "binary": _element(5, b"b", b"\x08\0\0\0\x02\x04\0\0\0abcd"),
}


def odd_documents() -> list[bytes]:
    """Documents with what applications seldom store, by themselves and within another."""
    found = []
    for number, elements in enumerate(ODD.values()):
        inner = _element(3, b"in", encoded(elements)) + _element(4, b"list", encoded(b""))
        for half, content in enumerate((elements, inner)):
            identity = _element(16, b"_id", pack("<i", 2 * number + half))
            found.append(encoded(identity + content))
    return found


def test_odd_field_names_and_every_type_are_byte_for_byte_as_in_the_source(
    orders: Orders, target: Target
) -> None:
    """In rows of a snapshot, inserted, and in place of other documents."""
    documents = [RawBSONDocument(each) for each in odd_documents()]
    zero = next(number for number, name in enumerate(ODD) if name == "a zero time")
    with orders.server.client() as client:
        source = client[orders.database].orders

        def fill() -> None:
            for at in range(0, len(documents), 4):
                client[orders.database].command(
                    "insert", "orders", documents=documents[at : at + 4]
                )
            source.update_one({"_id": 2 * zero}, {"$set": {"t": Timestamp(0, 0)}})

        fill()
        run = following(orders, target, scope={"snapshot": "initial"}).start()
        until_equal(orders, target)
        source.delete_many({})
        source.insert_many([{"_id": identity} for identity in mixed_ids(60)])
        until_equal(orders, target)
        source.delete_many({})
        until_equal(orders, target)
        fill()
        until_equal(orders, target)
        source.update_many({"_id": {"$gte": 0}}, [{"$unset": "in"}])
    assert len(until_equal(orders, target)) == len(documents)
    assert run.stop() == 0


def test_values_of_a_unique_index_may_change_hands_within_a_batch(
    orders: Orders, target: Target
) -> None:
    with target.client() as client:
        client[target.database].orders.create_index("seat", unique=True)
    run = following(orders, target, handler={"linger_seconds": 0.5}).start()
    with orders.server.client() as client:
        source = client[orders.database].orders
        source.insert_many([{"_id": number, "seat": number} for number in range(3)])
        until_equal(orders, target)
        for number, seat in ((0, 9), (1, 0), (2, 1), (0, 2)):
            source.update_one({"_id": number}, {"$set": {"seat": seat}})
    until_equal(orders, target)
    assert run.stop() == 0
    assert not run.logged("handler.failed")


def test_a_document_that_breaks_a_rule_halts_the_scope_and_nothing_of_its_batch_is_lost(
    orders: Orders, target: Target
) -> None:
    run = following(orders, target).start()
    orders.insert_each([{"_id": 1}, {"_id": 2, "refused": True}, {"_id": 3}])
    assert f"{target.database}.orders: Document failed validation (code 121)" in halted(run)
    with target.client() as client:
        client[target.database].command("collMod", "orders", validator={})
    run = following(orders, target).start()
    until_equal(orders, target)
    assert run.stop() == 0


def test_an_outbox_gets_each_event_once_and_leaves_what_is_there_as_it_is(
    orders: Orders, outbox: Target
) -> None:
    """Even if a daemon without a position begins again."""
    before = datetime.now(UTC) - timedelta(seconds=2)
    run = following(orders, outbox).start()
    orders.insert(1, 2)
    orders.drop()
    with outbox.client() as client:
        events = client[outbox.database].events
        until(lambda: events.count_documents({}) >= 4, "two inserts, the drop, the invalidate")
        found = [each["operationType"] for each in events.find().sort(["clusterTime", "_id"])]
        assert found == ["insert", "insert", "drop", "invalidate"]
        assert run.stop() == 0
        events.update_many({}, {"$set": {"sent": True}})
        events.delete_one({"documentKey._id": 2})
        client[outbox.database].tailrace_positions.drop()
        scope = {"start_at": before.isoformat()}
        again = following(orders, outbox, "again", scope=scope).start()
        until(lambda: events.count_documents({}) >= 4, "the event that was deleted")
        until(lambda: again.status()["state"] == "caught_up", "the end")
        assert again.stop() == 0
        marks = {each["operationType"]: each.get("sent") for each in events.find()}
        assert marks == {"insert": None, "drop": True, "invalidate": True}


@pytest.mark.parametrize("policy", ["follow", "keep", "refuse"])
def test_ddl_decides_what_a_drop_and_a_rename_do(
    orders: Orders, target: Target, policy: str
) -> None:
    run = following(orders, target, scope={"collection": None}, handler={"ddl": policy}).start()
    orders.insert(1)
    orders.insert(2, collection="old")
    orders.insert(3, collection="replaced")
    until_equal(orders, target, "replaced")
    until_equal(orders, target)
    with orders.server.client() as client, target.client() as copies:
        source, copy = client[orders.database], copies[target.database]
        source.orders.drop()
        source.old.rename("replaced", dropTarget=True)
        if policy == "refuse":
            assert f"the drop of {orders.database}.orders is refused" in halted(run)
            return
        orders.insert(4, collection="replaced")
        if policy == "follow":
            until_equal(orders, target, "replaced")
            names = {each for each in copy.list_collection_names() if "tailrace" not in each}
            assert names == {"replaced"}
        else:
            until(lambda: copy.replaced.count_documents({"_id": 4}), "the insert")
            assert [copy.orders.count_documents({}), copy.old.count_documents({})] == [1, 1]
            assert copy.replaced.count_documents({}) == 2
    assert run.stop() == 0


def test_a_further_snapshot_removes_what_is_not_in_the_source(
    orders: Orders, target: Target
) -> None:
    """Documents of every kind of ``_id``, of a collection that changes meanwhile, and all of a
    collection that is gone."""
    ids = mixed_ids(40)
    orders.insert_each({"_id": each} for each in ids)
    orders.insert(1, collection="gone")
    scope = {"collection": None, "snapshot": "initial"}
    run = following(orders, target, scope=scope, handler={"ddl": "follow"}).start()
    until_equal(orders, target, "gone")
    until_equal(orders, target)
    with orders.server.client() as client, target.client() as copies:
        copy = copies[target.database]
        copy.orders.insert_many([{"_id": each} for each in (*range(10_000, 12_500), "x", None)])
        copy.orders.delete_many({"_id": {"$in": ids[:5]}})
        assert run.stop() == 0
        client[orders.database].gone.drop()
        # As after a gap: the daemon does not see the drop.
        copy.tailrace_positions.drop()
        again = following(orders, target, "again", scope=scope).start()
        orders.insert_each([{"_id": "x"}])
        until_equal(orders, target)
        until(lambda: not copy.gone.count_documents({}), "that nothing is left of it")
        until(lambda: not copy.tailrace_unseen.count_documents({}), "an empty list")
        assert again.stop() == 0


def test_state_database_is_needed_where_each_database_has_its_own_copy(
    orders: Orders, target: Target
) -> None:
    names = {"database": "{database}_to", "state_database": target.database}
    handler = {**names, "uri": f"{target.server.uri_as('root', 'right')}{QUICK}"}
    run = following(orders, target, handler=handler).start()
    orders.insert(1, 2)
    with target.client() as client:
        copy = client[f"{orders.database}_to"]
        until(lambda: copy.orders.count_documents({}) == 2, "the copy")
        assert copy.list_collection_names() == ["orders"]
        client.drop_database(copy.name)
    assert run.stop() == 0


def test_fields_of_a_copy_are_left_out_and_renamed(orders: Orders, target: Target) -> None:
    fields = {"leave_out": ["a.secret"], "rename": {"b": "c"}}
    run = following(orders, target, handler={"fields": fields}).start()
    orders.insert_each([{"_id": 1, "a": {"secret": 1, "x": 2}, "b": 3}])
    until(lambda: target.raw("orders"), "the copy")
    assert [bson.decode(each) for each in target.raw("orders")] == [
        {"_id": 1, "a": {"x": 2}, "c": 3}
    ]
    assert run.stop() == 0


def test_two_collections_never_share_a_copy(orders: Orders, target: Target) -> None:
    run = following(orders, target, scope={"collection": None}, handler={"collection": "all"})
    run.start()
    orders.insert(1)
    orders.insert(2, collection="others")
    assert f"would share the copy {target.database}.all" in halted(run)
    with target.client() as client:
        assert [each["_id"] for each in client[target.database]["all"].find()] in ([1], [])


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
        with run.begun("check", "--connect") as check:
            _, errors = check.communicate(timeout=60)
        assert check.returncode == 1
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


def test_credentials_that_end_are_an_outage_until_the_file_has_others(
    orders: Orders, target: Target
) -> None:
    run = following(orders, target).start()
    orders.insert(1)
    until_equal(orders, target)
    target.expire()
    orders.insert(2)
    until(lambda: run.status()["state"] == "waiting", "the outage")
    target.renew()
    until_equal(orders, target)
    assert run.stop() == 0


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
