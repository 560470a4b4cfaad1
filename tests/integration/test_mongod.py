"""The service on a real server process: writes, DDL, faults, kills; both drivers."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


def scope_of(database: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": "orders", "database": database, "max_await_time_ms": 200, **more}]


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_it_follows_writes_across_restarts(
    mongod: ReplicaSet, database: str, daemon: Make, driver: str
) -> None:
    mongodb = {"uri": mongod.uri, "driver": driver}
    scopes = scope_of(database, collection="orders", full_document="updateLookup")
    run = daemon(mongod.uri, mongodb=mongodb, scopes=scopes).start()
    with mongod.client() as client:
        orders = client[database].orders
        orders.insert_many([{"_id": number} for number in range(300)])
        run.until_events(300)
        assert run.stop() == 0
        orders.update_one({"_id": 7}, {"$set": {"paid": True}})
        orders.replace_one({"_id": 8}, {"_id": 8, "new": 1})
        orders.delete_one({"_id": 9})
        run.start()
        events = run.until_events(303)
        assert run.stop() == 0
    assert run.ids() == [*range(300), 7, 8, 9]
    assert [event["operationType"] for event in events[-3:]] == ["update", "replace", "delete"]
    assert events[-3]["fullDocument"]["paid"] is True


def test_a_dropped_and_a_renamed_collection_are_followed_on(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = daemon(mongod.uri, scopes=scope_of(database, collection="orders")).start()
    with mongod.client() as client:
        orders = client[database].orders
        for round_ in range(3):
            orders.insert_one({"_id": round_})
            orders.drop() if round_ != 1 else orders.rename(f"old{round_}")
        orders.insert_one({"_id": 3})
        until(lambda: 3 in run.ids(), "the event after three invalidates")
    kinds = [event["operationType"] for event in run.events()]
    assert kinds.count("invalidate") == 3
    assert run.ids() == [0, 1, 2, 3]
    assert run.metric("tailrace_invalidates_total", scope="orders") == 3
    assert run.stop() == 0


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
@pytest.mark.parametrize(
    "fault",
    [
        {"errorCode": 43},
        {"errorCode": 11602, "errorLabels": ["ResumableChangeStreamError"]},
        {"closeConnection": True},
        {"errorCode": 8000},
    ],
    ids=["cursor lost", "labelled", "connection cut", "not resumable"],
)
def test_faults_of_reads_lose_nothing(
    mongod: ReplicaSet, database: str, daemon: Make, driver: str, fault: dict[str, Any]
) -> None:
    uri = mongod.uri + "&heartbeatFrequencyMS=500"
    run = daemon(
        uri,
        mongodb={"uri": uri, "driver": driver},
        scopes=scope_of(database, collection="orders"),
    ).start()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 0})
        run.until_events(1)
        mongod.fail("getMore", appName="tailrace", **fault)
        client[database].orders.insert_many([{"_id": number} for number in range(1, 50)])
        run.until_events(50)
    expected = (1, 0) if fault == {"errorCode": 8000} else (0, 1)
    until(lambda: recoveries(run) == expected, f"restarts and resumes: {expected}")
    assert run.stop() == 0
    assert run.ids() == list(range(50))


def recoveries(run: Daemon) -> tuple[int, int]:
    status = run.status()
    return status["restarts"], status["resumes"]


def test_after_a_kill_it_goes_on_from_the_last_checkpoint(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = daemon(mongod.uri, scopes=scope_of(database, collection="orders")).start()
    with mongod.client() as client:
        for round_ in range(4):
            client[database].orders.insert_many(
                [{"_id": round_ * 100 + number} for number in range(100)]
            )
            run.until_events(round_ * 100 + 50)
            run.signal(signal.SIGKILL)
            run.wait()
            run.start()
    until(lambda: set(run.ids()) == set(range(400)), "every event")
    assert run.stop() == 0
    first_seen = list(dict.fromkeys(run.ids()))
    assert first_seen == list(range(400))


def test_positions_can_live_in_the_server(mongod: ReplicaSet, database: str, daemon: Make) -> None:
    store = {"store": "mongodb", "database": f"{database}x", "interval_seconds": 0.1}
    run = daemon(
        mongod.uri, scopes=scope_of(database, collection="orders"), checkpoint=store
    ).start()
    with mongod.client() as client:
        client[database].orders.insert_one({"_id": 0})
        run.until_events(1)
        assert run.stop() == 0
        assert client[f"{database}x"].checkpoints.find_one({"_id": "orders"}) is not None
        client[database].orders.insert_one({"_id": 1})
        run.start()
        run.until_events(2)
        assert run.stop() == 0
        client.drop_database(f"{database}x")
    assert run.ids() == [0, 1]


def test_expanded_events_come_where_they_are_asked_for(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    scopes = scope_of(database, show_expanded_events=True)
    run = daemon(mongod.uri, scopes=scopes).start()
    with mongod.client() as client:
        orders = client[database].create_collection("orders")
        orders.create_index("n", name="by_n")
        orders.insert_one({"_id": 1, "n": 1})
        orders.drop_index("by_n")
        orders.drop()
        until(lambda: "drop" in operations(run), "the drop")
    assert operations(run) == ["create", "createIndexes", "insert", "dropIndexes", "drop"]
    assert run.stop() == 0


@pytest.mark.parametrize("followed", ["collection", "database"])
def test_a_dropped_database_is_followed_on(
    mongod: ReplicaSet, database: str, daemon: Make, followed: str
) -> None:
    more = {"collection": "orders"} if followed == "collection" else {}
    run = daemon(mongod.uri, scopes=scope_of(database, **more)).start()
    with mongod.client() as client:
        for round_ in range(2):
            client[database].orders.insert_one({"_id": round_})
            until(lambda n=round_: n in run.ids(), f"event {round_}")  # type: ignore[misc]
            client.drop_database(database)
        client[database].orders.insert_one({"_id": 2})
        until(lambda: 2 in run.ids(), "the event after two drops")
    assert run.ids() == [0, 1, 2]
    assert operations(run).count("invalidate") >= 2
    assert run.stop() == 0


def operations(run: Daemon) -> list[str]:
    return [event["operationType"] for event in run.events()]
