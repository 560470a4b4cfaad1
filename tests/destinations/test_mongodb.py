"""What is special about the destination ``mongodb``: a mirror, or an outbox, in another cluster."""

from datetime import UTC, datetime, timedelta

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from tests.daemon import until
from tests.destinations.copies import ODD, following, halted, odd_documents, until_equal
from tests.destinations.mongodb import Target
from tests.orders import QUICK, Orders
from tests.writers import mixed_ids


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
