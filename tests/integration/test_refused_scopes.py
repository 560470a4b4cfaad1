"""Scopes that a real server refuses: each halts with the server's message and what to correct."""

from typing import Any

from tests.daemon import until
from tests.orders import Orders

# By name: the scope, and what the message says besides the server's words.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "view": ({"collection": "view"}, "correct the scope"),
    "series": ({"collection": "series"}, "correct the scope"),
    "stage": ({"pipeline": [{"$nope": 1}]}, "correct the scope's pipeline"),
    "group": ({"pipeline": [{"$group": {"_id": 1}}]}, "correct the scope"),
    "where": ({"pipeline": [{"$match": {"$where": "1"}}]}, "correct the scope"),
    "operator": ({"pipeline": [{"$match": {"a": {"$nope": 1}}}]}, "correct the scope"),
    "expression": ({"pipeline": [{"$set": {"a": {"$nope": 1}}}]}, "correct the scope"),
    "filter": ({"pipeline": [{"$match": 5}]}, "correct the scope"),
    "project": ({"pipeline": [{"$project": 5}]}, "correct the scope"),
    "arguments": ({"pipeline": [{"$set": {"a": {"$divide": [1]}}}]}, "correct the scope"),
    "split": ({"split_large_events": True}, "correct the scope's pipeline"),
}


def test_each_halts_and_leaves_the_others_running(orders: Orders) -> None:
    """One of them is splitting: mongod has that stage from 6.0.9."""
    scopes = [orders.scope(name="good")]
    scopes += [orders.scope(name=name, **scope) for name, (scope, _) in REFUSED.items()]
    routes = [{"scope": scope["name"], "handlers": ["file"]} for scope in scopes]
    with orders.server.client() as client:
        shop = client[orders.database]
        shop.create_collection("orders")
        shop.create_collection("view", viewOn="orders", pipeline=[])
        shop.create_collection("series", timeseries={"timeField": "at"})
    run = orders.daemon(scopes=scopes, routes=routes).start(ready=False).until_answers()

    def halted() -> dict[str, str]:
        return {entry["scope"]: entry["error"] for entry in run.logged("scope.halted")}

    until(lambda: len(halted()) >= len(REFUSED), "every halt")
    messages = halted()
    until(lambda: run.status("good").get("state") == "caught_up", "the good one")
    code, reasons = run.get("/readyz")
    assert code == 503
    assert all(f"scope {name}: halted" in reasons for name in REFUSED)
    assert run.metric("tailrace_watcher_state", scope="view", state="halted") == 1
    orders.insert(1)
    run.until_events(1)
    assert run.stop() == 0
    assert set(messages) == set(REFUSED)
    for name, (_, message) in REFUSED.items():
        assert message in messages[name], messages[name]


def test_an_event_beyond_16_mb_halts_and_names_the_option(orders: Orders) -> None:
    """The document is small enough, but the event with its pre-image and post-image is not."""
    images = {"full_document": "required", "full_document_before_change": "required"}
    run = orders.daemon(scope=images)
    with orders.server.client() as client:
        collection = client[orders.database].create_collection(
            "orders", changeStreamPreAndPostImages={"enabled": True}
        )
        run.start()
        collection.insert_one({"_id": 1, "text": "x" * 9_000_000})
        run.until_events(1)
        collection.update_one({}, {"$set": {"text": "y" * 9_000_000}})
    run.halts()
    assert "set split_large_events: true" in run.logged("scope.halted")[0]["error"]
    assert run.ids() == [1]
