"""Images of documents that a real server stored before and behind each change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import Client, ReplicaSet

BOTH = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}


def following(server: ReplicaSet, database: str, daemon: Make, **more: Any) -> Daemon:
    scope = {"name": "orders", "database": database, "collection": "orders"}
    handlers = {"file": {"type": "jsonl", "path": "events.jsonl", "json": "relaxed"}}
    scopes = [{**scope, "max_await_time_ms": 200, **more}]
    return daemon(server.uri, scopes=scopes, handlers=handlers)


def with_images(client: Client, database: str) -> Any:
    images = {"enabled": True}
    return client[database].create_collection("orders", changeStreamPreAndPostImages=images)


@pytest.mark.parametrize("ask", ["whenAvailable", "required"])
def test_each_change_has_the_images_of_its_own_moment(
    mongod: ReplicaSet, database: str, daemon: Make, ask: str
) -> None:
    """However late it is read: the document has changed since, and is gone in the end."""
    more = {"full_document": ask, "full_document_before_change": ask}
    run = following(mongod, database, daemon, **more).start()
    with mongod.client() as client:
        orders = with_images(client, database)
        until(lambda: run.status()["checkpoint"], "a checkpoint")
        assert run.stop() == 0
        orders.insert_one({"_id": 1, "n": 0})
        for n in (1, 2):
            orders.update_one({"_id": 1}, {"$set": {"n": n}})
        orders.replace_one({"_id": 1}, {"_id": 1, "n": 3})
        orders.delete_one({"_id": 1})
        run.start()
        events = run.until_events(5)
    assert run.stop() == 0
    shown = [
        (
            event["operationType"],
            (event.get("fullDocumentBeforeChange") or {}).get("n"),
            (event.get("fullDocument") or {}).get("n"),
        )
        for event in events
    ]
    assert shown == [
        ("insert", None, 0),
        ("update", 0, 1),
        ("update", 1, 2),
        ("replace", 2, 3),
        ("delete", 3, None),
    ]


def test_a_lookup_finds_the_document_of_today(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """Newer than the change, and null where it is gone."""
    run = following(mongod, database, daemon, full_document="updateLookup").start()
    assert run.stop() == 0
    with mongod.client() as client:
        orders = client[database].orders
        for key in (1, 2):
            orders.insert_one({"_id": key, "n": 0})
            for n in (1, 2):
                orders.update_one({"_id": key}, {"$set": {"n": n}})
        orders.delete_one({"_id": 2})
    run.start()
    events = run.until_events(7)
    assert run.stop() == 0
    updates = [event for event in events if event["operationType"] == "update"]
    assert [event["fullDocument"] and event["fullDocument"]["n"] for event in updates] == [
        *(2, 2),
        *(None, None),
    ]


def test_available_images_are_null_where_none_was_stored(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = following(mongod, database, daemon, **BOTH).start()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 1})
        client[database].orders.update_one({"_id": 1}, {"$set": {"n": 1}})
        client[database].orders.delete_one({"_id": 1})
    _, update, delete = run.until_events(3)
    assert run.stop() == 0
    assert update["fullDocument"] is None
    assert update["fullDocumentBeforeChange"] is None
    assert delete["fullDocumentBeforeChange"] is None


@pytest.mark.parametrize("option", ["full_document", "full_document_before_change"])
def test_a_required_image_that_was_not_stored_halts_the_scope(
    mongod: ReplicaSet, database: str, daemon: Make, option: str
) -> None:
    """What came before it is handed over; and what to do is said."""
    run = following(mongod, database, daemon, **{option: "required"}).start()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 1})
        run.until_events(1)
        client[database].orders.update_one({"_id": 1}, {"$set": {"n": 1}})
    assert run.wait() == 1
    assert "enable changeStreamPreAndPostImages" in run.logged("scope.halted")[0]["error"]
    assert [event["operationType"] for event in run.events()] == ["insert"]


@pytest.mark.parametrize("ask", ["whenAvailable", "required"])
def test_images_that_have_expired(
    mortal: ReplicaSet, database: str, daemon: Make, ask: str
) -> None:
    run = following(mortal, database, daemon, full_document_before_change=ask).start()
    with mortal.client() as client:
        orders = with_images(client, database)
        until(lambda: run.status()["checkpoint"], "a checkpoint")
        assert run.stop() == 0
        orders.insert_one({"_id": 1})
        orders.update_one({"_id": 1}, {"$set": {"n": 1}})
        keep_images(client, 1)
        images = client.config["system.preimages"]
        until(lambda: not images.estimated_document_count(), "the end of the images")
        keep_images(client, "off")
    run.start(ready=ask == "whenAvailable")
    if ask == "required":
        assert run.wait() == 1
        assert "a required image is missing" in run.logged("scope.halted")[0]["error"]
        return
    _, update = run.until_events(2)
    assert run.stop() == 0
    assert update["fullDocumentBeforeChange"] is None


def keep_images(client: Client, seconds: int | str) -> None:
    options = {"preAndPostImages": {"expireAfterSeconds": seconds}}
    client.admin.command("setClusterParameter", {"changeStreamOptions": options})
