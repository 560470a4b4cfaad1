"""Snapshots as users see them: configuration, commands, status, metrics, log."""

import json
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.machine import free_port
from tests.mongod import Client, ReplicaSet


@pytest.fixture
def client(mongod: ReplicaSet, database: str) -> Any:
    with mongod.client() as made:
        yield made


def made(daemon: Make, mongod: ReplicaSet, database: str, **scope: Any) -> Daemon:
    """A daemon of one collection, on a port that its commands know."""
    fields = {"name": "orders", "database": database, "collection": "c", "max_await_time_ms": 200}
    return daemon(mongod.uri, scopes=[fields | scope], http={"port": free_port()})


def kinds(run: Daemon) -> list[str]:
    return [event["operationType"] for event in run.events()]


def snapshot(run: Daemon) -> dict[str, Any]:
    return run.status().get("snapshot") or {}


def fill(client: Client, database: str, count: int = 500) -> None:
    client[database].c.insert_many([{"_id": n, "even": n % 2 == 0} for n in range(count)])


def test_existing_documents_come_first_and_once(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    fill(client, database)
    chosen = {"mode": "initial", "chunk_documents": 7}
    run = made(daemon, mongod, database, snapshot=chosen).start()
    until(lambda: snapshot(run).get("state") == "done", "the snapshot's end")
    client[database].c.insert_one({"_id": 1000})
    run.until_events(503)
    name = f"{database}.c"
    assert kinds(run) == ["snapshotBegin", *["read"] * 500, "snapshotEnd", "insert"]
    assert sorted(run.ids()) == [*range(500), 1000]
    assert snapshot(run)["collections"] == [
        {
            "collection": name,
            "state": "done",
            "reason": None,
            "estimate": 500,
            "scanned": 500,
            "documents": 500,
            "remaining": 0,
            "documents_per_second": 0.0,
            "seconds_left": None,
        }
    ]
    documents = {"scope": "orders", "collection": name}
    assert run.metric("tailrace_snapshot_documents_total", **documents) == 500
    assert run.metric("tailrace_snapshot_remaining_documents", **documents) == 0
    assert run.metric("tailrace_events_total", operation="read") == 500
    assert run.stop() == 0
    run.start()
    client[database].c.insert_one({"_id": 1001})
    run.until_events(504)
    assert kinds(run)[-2:] == ["insert", "insert"]
    assert [len(run.logged(name)) for name in ("snapshot.begun", "snapshot.done")] == [1, 1]


def test_a_first_start_without_a_snapshot_says_what_is_omitted(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    fill(client, database)
    run = made(daemon, mongod, database).start()
    until(lambda: run.logged("snapshot.documents_left_out"), "the warning")
    (warning,) = run.logged("snapshot.documents_left_out")
    assert warning["documents"] == 500
    assert "tailrace snapshot start orders" in warning["consequence"]
    assert run.stop() == 0
    run.start()
    client[database].c.insert_one({"_id": 1000})
    run.until_events(1)
    assert len(run.logged("snapshot.documents_left_out")) == 1


def test_a_snapshot_starts_on_demand(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    fill(client, database)
    run = made(daemon, mongod, database).start()
    assert "no snapshot" in run.command("snapshot", "status", "orders")
    run.command("snapshot", "start", "orders", "--collection", "c", "--filter", '{"even": true}')
    shown = run.command("snapshot", "status", "orders", "--watch")
    assert "[########################] 100%  500 documents, 250 match  done" in shown
    until(lambda: kinds(run)[-1:] == ["snapshotEnd"], "the end")
    assert sorted(run.ids()) == list(range(0, 500, 2))
    begin = run.events()[0]
    assert begin["snapshot"]["mode"] == "requested"
    assert json.loads(begin["snapshot"]["filter"]) == {"even": True}
    assert begin["_id"]["snapshot"] == run.events()[1]["_id"]["snapshot"]


def test_a_snapshot_is_paused_over_a_restart_and_cancelled(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    fill(client, database, 5000)
    slow = {"chunk_documents": 10, "documents_per_second": 500}
    run = made(daemon, mongod, database, snapshot=slow).start()
    run.command("snapshot", "start", "orders")
    run.until_events(100)
    until(lambda: snapshot(run)["seconds_left"], "how long it takes")
    (part,) = snapshot(run)["collections"]
    assert 0 < part["documents_per_second"] < 1000
    assert part["scanned"] + part["remaining"] == 5000
    run.command("snapshot", "pause", "orders")
    until(lambda: snapshot(run).get("state") == "paused", "the pause")
    assert "tailrace snapshot resume" in snapshot(run)["reason"]
    assert snapshot(run)["seconds_left"] is None
    client[database].c.insert_one({"_id": "beside"})
    until(lambda: "insert" in kinds(run), "the stream goes on")
    assert run.stop() == 0
    count = len(run.events())
    run.start()
    assert snapshot(run)["state"] == "paused"
    run.command("snapshot", "resume", "orders")
    run.until_events(count + 50)
    run.command("snapshot", "cancel", "orders")
    until(lambda: snapshot(run).get("state") == "cancelled", "the end")
    assert "snapshotEnd" not in kinds(run)
    assert len(run.ids()) == len(set(map(str, run.ids())))
    run.command("snapshot", "start", "orders")
    until(lambda: kinds(run).count("snapshotBegin") == 2, "another one")


@pytest.mark.parametrize(
    ("mode", "message"), [("never", "are not delivered"), ("initial", "are delivered")]
)
def test_check_says_what_happens_to_existing_documents(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make, mode: str, message: str
) -> None:
    fill(client, database)
    run = made(daemon, mongod, database, snapshot=mode)
    run.configured()
    shown = run.command("check", "--connect")
    assert f"about 500 existing documents {message}" in shown


def test_a_snapshot_keeps_the_filter_that_it_began_with(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    """Over a restart, even if the configuration has another filter by then."""
    fill(client, database, 1000)
    slow = {"mode": "initial", "chunk_documents": 50, "documents_per_second": 1000}
    run = made(daemon, mongod, database, snapshot={**slow, "filter": {"even": True}}).start()
    run.until_events(100)
    assert run.stop() == 0
    run.configuration["scopes"][0]["snapshot"]["filter"] = {"even": False}
    run.start()
    until(lambda: kinds(run)[-1:] == ["snapshotEnd"], "the end")
    assert set(run.ids()) == set(range(0, 1000, 2))
    assert len(run.ids()) == 500
    (filters,) = {e["snapshot"]["filter"] for e in run.events() if "snapshot" in e}
    assert json.loads(filters) == {"even": True}
    run.command("snapshot", "start", "orders", "--filter", '{"even": false}')
    until(lambda: kinds(run).count("snapshotEnd") == 2, "one with another filter")
    assert set(run.ids()) == set(range(1000))


def test_a_started_snapshot_survives_a_kill(
    mongod: ReplicaSet, client: Client, database: str, daemon: Make
) -> None:
    """It is saved at once, not with the next checkpoint."""
    fill(client, database)
    slow = {"chunk_documents": 50, "documents_per_second": 200}
    run = made(daemon, mongod, database, snapshot=slow)
    run.configuration["checkpoint"] = {"interval_seconds": 60}
    run.start()
    run.command("snapshot", "start", "orders")
    until(lambda: "snapshotBegin" in kinds(run), "the beginning")
    run.kill()
    run.start()
    until(lambda: kinds(run)[-1:] == ["snapshotEnd"], "the end")
    assert len({e["snapshot"]["id"] for e in run.events() if "snapshot" in e}) == 1
    assert set(run.ids()) == set(range(500))
