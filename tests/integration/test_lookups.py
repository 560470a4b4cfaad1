"""``full_document: lookup`` on a real server: what handlers receive, and what can fail."""

from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, json_util

from tests.daemon import Daemon, files, gated, until, whole_lines
from tests.mongod import Client
from tests.orders import Orders

LOOKS_UP = {"full_document": "lookup"}


def updates(run: Daemon) -> list[dict[str, Any]]:
    return [event for event in run.events() if event["operationType"] == "update"]


def numbers(run: Daemon) -> list[int]:
    """`n` in the document of each update."""
    return [int(event["fullDocument"]["n"]["$numberInt"]) for event in updates(run)]


def changed(orders: Orders, client: Client, *numbers: int, key: Any = 1) -> None:
    """Updates a document, which exists from then on."""
    for n in numbers:
        client[orders.database].orders.update_one({"_id": key}, {"$set": {"n": n}}, upsert=True)


@pytest.mark.parametrize(
    ("driver", "scope"),
    [
        ("motor", {}),
        ("pymongo", {"batch_size": 3}),
        ("motor", {"show_expanded_events": True, "transactions": "grouped"}),
    ],
    ids=["", "small replies", "expanded, whole transactions"],
)
def test_events_equal_those_of_update_lookup_byte_for_byte(
    orders: Orders, driver: str, scope: dict[str, Any]
) -> None:
    """Any type of key, before and after renames and drops, in transactions, and deleted."""
    ways = ("updateLookup", "lookup")
    before = {"full_document_before_change": "whenAvailable"}
    run = orders.daemon(
        driver=driver,
        scopes=[
            {"name": way, "database": orders.database, "full_document": way, **before, **scope}
            for way in ways
        ],
        **files(*ways),
    ).start()
    assert run.stop() == 0
    keys = [1, 2, 2.5, Int64(2**40), "a", {"a": [1]}, ObjectId(), Decimal128("7.50"), None]
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.create_collection("users", changeStreamPreAndPostImages={"enabled": True})
        for name in ("orders", "users", "gone", "moved", "again"):
            shop[name].insert_many([{"_id": key, "n": 0} for key in keys])
            shop[name].update_many({}, {"$inc": {"n": 1}})
            shop[name].update_many({"n": 1}, [{"$set": {"n": 2, "more": "x" * 100}}])
            with client.start_session() as session, session.start_transaction():
                shop[name].update_many({"_id": {"$lt": 3}}, {"$inc": {"n": 5}}, session=session)
            shop[name].delete_one({"_id": 2})
            shop[name].replace_one({"_id": 1}, {"n": "replaced"})
        shop.gone.drop()
        shop.moved.rename("there")
        shop.again.drop()
        shop.again.insert_one({"_id": 1, "n": "another"})
        shop.orders.insert_one({"_id": "last"})
    run.start()
    written = [run.directory / f"{way}.jsonl" for way in ways]
    for file in written:
        until(lambda file=file: '"_id":"last"' in file.read_text(), "the last change")
    assert run.stop() == 0
    theirs, ours = (whole_lines(file.read_text()) for file in written)
    assert ours == theirs
    documents = [json_util.loads(line).get("fullDocument", 0) for line in ours]
    assert None in documents
    assert any(document and document["n"] == 7 for document in documents)


def test_a_look_up_that_fails_twice_restarts_the_scope_and_nothing_is_lost(orders: Orders) -> None:
    """It is sent again once. After the second failure the stream reopens where it was."""
    run = orders.daemon(scope=LOOKS_UP).start()
    with orders.server.client() as client:
        changed(orders, client, 0, 1)
        until(lambda: numbers(run) == [1], "the first update")
        namespace = f"{orders.database}.orders"
        orders.server.fail("find", 2, errorCode=11602, namespace=namespace)
        changed(orders, client, 2)
        until(lambda: numbers(run) == [1, 2], "the second update")
        assert run.status()["restarts"] == 1
        errors = str(run.status()["errors"])
        assert "11602" in errors
        assert f"documents of {namespace} cannot be looked up" in errors
        changed(orders, client, 3)
        until(lambda: numbers(run) == [1, 2, 3], "the third update")
    assert run.stop() == 0


def test_a_look_up_that_is_not_allowed_is_waited_for_and_names_the_collection(
    orders: Orders,
) -> None:
    run = orders.daemon(scope=LOOKS_UP).start()
    namespace = f"{orders.database}.orders"
    with orders.server.client() as client:
        changed(orders, client, 0)
        orders.server.fail("find", "alwaysOn", errorCode=13, namespace=namespace)
        try:
            changed(orders, client, 1)
            until(lambda: run.status()["state"] == "backing_off", "the wait")
        finally:
            orders.server.fail("find", "off")
    error = run.logged("watcher.restarting")[0]["error"]
    assert f"documents of {namespace} cannot be looked up" in error
    assert "the user lacks the privilege" in error
    until(lambda: numbers(run)[-1:] == [1], "the second update")
    assert run.stop() == 0


def test_documents_count_as_bytes_in_flight(orders: Orders) -> None:
    """A reply of small events with large documents is handed over in parts."""
    budget, size, count = 1_000_000, 50_000, 100
    run = orders.daemon(scope=LOOKS_UP, delivery={"max_in_flight_bytes": budget, "lanes": 1})
    open_gate = gated(run)
    assert run.start().stop() == 0
    run.configuration["routes"][0]["operations"] = ["update"]
    with orders.server.client() as client:
        collection = client[orders.database].orders
        collection.insert_many([{"_id": n, "text": "x" * size} for n in range(count)])
        collection.update_many({}, {"$set": {"n": 1}})
    run.start()
    until(lambda: run.status()["state"] == "waiting", "the pause")
    held = run.metric("tailrace_in_flight_bytes", scope="orders")
    assert held is not None
    assert budget / 2 <= held <= budget
    open_gate()
    until(lambda: len(run.numbers("handled")) == count, "the end")
    assert run.numbers("handled") == [*range(count)]
    assert run.stop() == 0


def test_the_look_up_mode_may_be_changed(orders: Orders) -> None:
    """Like any change of options: the scope continues at the time of its checkpoint."""
    run = orders.daemon(scope={"full_document": "updateLookup"}).start()
    with orders.server.client() as client:
        changed(orders, client, 0, 1)
        until(lambda: numbers(run) == [1], "the first update")
        assert run.stop() == 0
        changed(orders, client, 2)
        run.configuration["scopes"][0]["full_document"] = "lookup"
        run.start()
        until(lambda: numbers(run)[-1] == 2, "the second update")
    assert run.stop() == 0
    assert run.logged("checkpoint.pipeline_changed")


def test_rows_of_a_snapshot_and_looked_up_documents_end_as_the_source(orders: Orders) -> None:
    """Rows, too, take their correct place among the changes."""
    count = 2000
    orders.insert(*range(count), n=0)
    run = orders.daemon(
        scope={**LOOKS_UP, "snapshot": {"mode": "initial", "chunk_documents": 100}}
    ).start()
    with orders.server.client() as client:
        collection = client[orders.database].orders
        for n in range(1, 60):
            collection.update_many({"_id": {"$mod": [60, n]}}, {"$set": {"n": n}})
            collection.delete_one({"_id": n * 7})
        collection.insert_one({"_id": "last"})
        wanted = {each["_id"]: each for each in collection.find()}

    def kinds() -> list[str]:
        return [event["operationType"] for event in run.events()]

    until(lambda: {"snapshotEnd", "insert"} <= {*kinds()}, "the end")
    assert run.stop() == 0
    found: dict[Any, Any] = {}
    for line in whole_lines((run.directory / "events.jsonl").read_text()):
        event = json_util.loads(line)
        match event["operationType"]:
            case "read" | "insert" | "update":
                found[event["documentKey"]["_id"]] = event["fullDocument"]
            case "delete":
                found.pop(event["documentKey"]["_id"], None)  # or deleted before its row was read
    assert found == wanted
