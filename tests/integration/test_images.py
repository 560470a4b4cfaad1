"""Images of documents that a real server stored before and after each change."""

from typing import Any

import pytest

from tests.daemon import Make, files, until
from tests.machine import free_port
from tests.mongod import Client, ReplicaSet
from tests.orders import Orders

BOTH = ("full_document", "full_document_before_change")


def with_images(client: Client, database: str) -> Any:
    images = {"enabled": True}
    return client[database].create_collection("orders", changeStreamPreAndPostImages=images)


def number(document: dict[str, Any] | None) -> Any:
    return document and document["n"]["$numberInt"]


def test_each_change_has_the_images_of_its_own_moment(orders: Orders) -> None:
    """However late it is read: the document has changed since, and is deleted in the end."""
    run = orders.daemon(scope=dict.fromkeys(BOTH, "required")).start()
    with orders.server.client() as client:
        collection = with_images(client, orders.database)
        until(lambda: run.status()["checkpoint"], "a checkpoint")
        assert run.stop() == 0
        collection.insert_one({"_id": 1, "n": 0})
        for n in (1, 2):
            collection.update_one({"_id": 1}, {"$set": {"n": n}})
        collection.replace_one({"_id": 1}, {"_id": 1, "n": 3})
        collection.delete_one({"_id": 1})
    run.start()
    events = run.until_events(5)
    assert run.stop() == 0
    shown = [
        (
            event["operationType"],
            number(event.get("fullDocumentBeforeChange")),
            number(event.get("fullDocument")),
        )
        for event in events
    ]
    assert shown == [
        ("insert", None, "0"),
        ("update", "0", "1"),
        ("update", "1", "2"),
        ("replace", "2", "3"),
        ("delete", "3", None),
    ]


def test_available_images_are_null_where_none_was_stored(orders: Orders) -> None:
    run = orders.daemon(scope=dict.fromkeys(BOTH, "whenAvailable")).start()
    orders.insert(1)
    with orders.server.client() as client:
        client[orders.database].orders.update_one({"_id": 1}, {"$set": {"n": 1}})
        client[orders.database].orders.delete_one({"_id": 1})
    _, update, delete = run.until_events(3)
    assert run.stop() == 0
    assert update["fullDocument"] is None
    assert update["fullDocumentBeforeChange"] is None
    assert delete["fullDocumentBeforeChange"] is None


@pytest.mark.parametrize("option", BOTH)
def test_a_required_image_that_was_not_stored_halts_the_scope(orders: Orders, option: str) -> None:
    """Earlier events are handed over; the message says what to do."""
    run = orders.daemon(scope={option: "required"}).start()
    orders.insert(1)
    run.until_events(1)
    with orders.server.client() as client:
        client[orders.database].orders.update_one({"_id": 1}, {"$set": {"n": 1}})
    error = run.halts()
    assert "a required image is missing" in error
    assert "tailrace scopes skip orders" in error
    assert [event["operationType"] for event in run.events()] == ["insert"]


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_change_without_its_image_is_set_aside_and_everything_else_is_handed_over(
    orders: Orders, driver: str
) -> None:
    """All of it comes in one reply, the last part in one transaction of one time."""
    port = {"port": free_port()}
    run = orders.daemon(scope={"full_document": "required"}, driver=driver, http=port).start()
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.insert_one({"_id": 0})
        run.until_events(1)
        assert run.stop() == 0
        collection.insert_many([{"_id": number} for number in range(1, 51)])
        with client.start_session() as session, session.start_transaction():
            collection.insert_one({"_id": 51}, session=session)
            collection.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
            collection.insert_one({"_id": 52}, session=session)
    run.start(ready=False).until_answers()
    (halted,) = until(lambda: run.logged("scope.halted"), "the halt")
    assert f'the update of {{"_id": 1}} in {orders.database}.orders' in halted["error"]
    assert "tailrace scopes skip orders" in halted["error"]
    assert run.ids() == list(range(52))
    assert "Dry run" in run.command("scopes", "skip", "orders", "--dry-run")
    assert "is moved" in run.command("scopes", "skip", "orders")
    run.until_events(53)
    assert run.ids() == list(range(53))
    assert run.stop() == 0
    assert '"_id": 1' in run.command("checkpoints", "show", "orders")


def test_images_that_have_expired_are_null_or_halt_the_scope(
    mortal: ReplicaSet, database: str, daemon: Make
) -> None:
    orders, asks = Orders(mortal, database, daemon), ("whenAvailable", "required")
    scopes = [orders.scope(name=ask, full_document_before_change=ask) for ask in asks]
    run = orders.daemon(scopes=scopes, **files(*asks)).start()
    with mortal.client() as client:
        collection = with_images(client, database)
        until(lambda: all(run.status(ask)["checkpoint"] for ask in asks), "checkpoints")
        assert run.stop() == 0
        collection.insert_one({"_id": 1})
        collection.update_one({"_id": 1}, {"$set": {"n": 1}})
        keep_images(client, 1)
        images = client.config["system.preimages"]
        until(lambda: not images.estimated_document_count(), "the end of the images")
        keep_images(client, "off")
    run.start(ready=False)
    (halted,) = until(lambda: run.logged("scope.halted"), "the halt")
    assert halted["scope"] == "required"
    assert "a required image is missing" in halted["error"]
    _, update = run.until_events(2, "whenAvailable.jsonl")
    assert run.stop() == 0
    assert update["fullDocumentBeforeChange"] is None


def keep_images(client: Client, seconds: int | str) -> None:
    options = {"preAndPostImages": {"expireAfterSeconds": seconds}}
    client.admin.command("setClusterParameter", {"changeStreamOptions": options})
