"""An old position on a quiet collection: the server scans its oplog, and the daemon says so."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.faults.network import Network
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

FOREIGN = 400_000
LIVENESS_SECONDS = 2
SCOPE = {"name": "orders", "database": "shop", "collection": "orders", "max_await_time_ms": 200}


@pytest.fixture(scope="module")
def server(one_member: ReplicaSet) -> Iterator[ReplicaSet]:
    """A server whose oplog is full of changes of other collections."""
    with one_member.client() as client:
        client.quiet.create_collection("orders")
        for number in range(FOREIGN // 20_000):
            documents = [{"_id": 20_000 * number + n} for n in range(20_000)]
            client.foreign.others.insert_many(documents, ordered=False)
        yield one_member
        client.drop_database("foreign")
        client.drop_database("quiet")


def configured(daemon: Make, uri: str, **scope: Any) -> Daemon:
    return daemon(
        uri,
        http={"port": 0, "liveness_seconds": LIVENESS_SECONDS},
        scopes=[{**SCOPE, **scope}],
    )


def test_an_old_position_on_a_quiet_collection_opens_catches_up_and_arrives(
    server: ReplicaSet, daemon: Make
) -> None:
    with server.client() as client:
        (first,) = client.local.oplog.rs.find({"ns": "quiet.$cmd"}).sort("$natural", -1).limit(1)
        client.quiet.orders.insert_one({"_id": 1})
    old = first["ts"].as_datetime().isoformat()
    run = configured(daemon, server.uri, database="quiet", start_at=old).start()
    seen, health = set(), set()
    deadline = time.monotonic() + 60
    while not run.ids() and time.monotonic() < deadline:
        seen.add(run.status()["state"])
        health.add((run.get("/livez")[0], run.get("/readyz")[0]))
    assert run.ids() == [1]
    assert "catching_up" in seen
    assert run.metric("tailrace_watcher_state", state="catching_up") is not None
    assert health == {(200, 200)}
    until(lambda: run.status()["state"] == "caught_up", "the end of the search")
    assert (run.status()["restarts"], run.status()["resumes"]) == (0, 0)
    assert run.stop() == 0


def test_a_connection_that_hangs_fails_livez_after_liveness_seconds(
    mongod: ReplicaSet, daemon: Make
) -> None:
    """The stream's connection is half-open and the others work: no server executes the read."""
    with Network(mongod) as network:
        run = configured(daemon, network.uri, database="hung").start()
        with mongod.client() as client:
            client.hung.orders.insert_one({})
            run.until_events(1)
            until(lambda: run.status()["state"] == "caught_up", "an idle stream")
            network.hold("reads")
            until(lambda: run.get("/livez")[0] == 503, "that it is not alive", 20)
            assert "no answer from the server" in run.get("/livez")[1]
            network.heal()
            until(lambda: run.get("/livez")[0] == 200, "that it is alive")
        assert run.stop() == 0


def test_a_stop_does_not_wait_for_a_search_of_the_oplog(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = configured(daemon, scripted.uri).start()
    scripted.insert("shop.orders", {"_id": 1})
    run.until_events(1)
    assert run.stop() == 0
    scripted.behave(scan_seconds=60)
    run.start()
    until(lambda: run.status()["state"] == "catching_up", "the search")
    run.signal()
    assert run.wait(45) == 0  # and not after the search
    assert run.ids() == [1]
