"""The service on a real server process: writes, DDL, faults, kills; both drivers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet


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


def test_positions_can_live_in_the_server(mongod: ReplicaSet, database: str, daemon: Make) -> None:
    store = {"type": "mongodb", "database": f"{database}x"}
    run = daemon(mongod.uri, scopes=scope_of(database, collection="orders"), store=store).start()
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
