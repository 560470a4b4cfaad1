"""Three real members, of which some die, hang or are not primary, while changes are written.

Nothing is lost, repeated, or out of order, and the service says when it cannot read.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.conftest import QUICK
from tests.faults.load import assert_whole, real_load
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

VERSIONS = """
import random

import anyio

file = open("versions", "a", buffering=1)


async def handle(event):
    await anyio.sleep(random.random() / 100)
    if event.operation_type == "insert":
        number = event.full_document["number"]
    else:
        number = event.update_description["updatedFields"]["number"]
    print(event.document_key["_id"], number, file=file)
"""


def scope(database: str, **more: Any) -> list[dict[str, Any]]:
    shown = {"name": "orders", "database": database, "collection": "orders"}
    return [{**shown, "max_await_time_ms": 200, **more}]


def following(
    server: ReplicaSet, database: str, daemon: Make, driver: str = "motor", **more: Any
) -> Daemon:
    uri = server.uri + QUICK
    mongodb = {"uri": uri, "driver": driver}
    return daemon(uri, mongodb=mongodb, scopes=scope(database, **more)).start()


def home(server: ReplicaSet, database: str) -> int:
    """The member that serves the stream."""
    found: set[int] = until(
        lambda: {member for member, *_ in server.streams(database)}, "the stream's cursor"
    )
    return found.pop()


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_primary_that_is_killed_is_replaced(
    replica_set: ReplicaSet, database: str, daemon: Make, driver: str
) -> None:
    run = following(replica_set, database, daemon, driver)
    with real_load(replica_set, database) as load:
        load.more()
        dead = home(replica_set, database)
        assert dead == replica_set.primary()
        replica_set.stop_member(dead, signal.SIGKILL)
        load.more()
        until(lambda: len(run.ids()) >= load.written - 3, "the changes at the next primary")
        assert home(replica_set, database) == replica_set.primary() != dead
        replica_set.start()
        load.more()
    assert run.status()["resumes"] + run.status()["restarts"] >= 1
    assert_whole(run, load.written)


def test_a_secondary_that_is_killed_is_left_for_another_member(
    replica_set: ReplicaSet, database: str, daemon: Make
) -> None:
    run = following(replica_set, database, daemon, read_preference="secondary")
    with real_load(replica_set, database) as load:
        load.more()
        dead = home(replica_set, database)
        assert dead in replica_set.secondaries()
        replica_set.stop_member(dead, signal.SIGKILL)
        load.more()
        until(lambda: len(run.ids()) >= load.written - 3, "the changes at the other secondary")
        replica_set.start()
    assert_whole(run, load.written)


def test_without_a_majority_nothing_comes_and_nothing_is_lost(
    replica_set: ReplicaSet, database: str, daemon: Make
) -> None:
    """A change that no majority has is no event; the primary steps down, and comes back."""
    run = following(replica_set, database, daemon)
    with real_load(replica_set, database) as load:
        load.more()
        for member in replica_set.secondaries():
            replica_set.stop_member(member, signal.SIGKILL)
        until(lambda: not any(map(replica_set.leads, replica_set.running)), "the step-down")
        assert run.get("/livez")[0] == 200
        replica_set.start()
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
    assert_whole(run, load.written)


def test_the_order_of_each_document_survives_elections(
    replica_set: ReplicaSet, database: str, daemon: Make
) -> None:
    """Many lanes, a handler that suspends: the events of one document stay in order."""
    run = daemon(
        replica_set.uri + QUICK,
        scopes=scope(database),
        handlers={"mine": {"type": "python", "target": "versions:handle"}},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
    )
    (run.directory / "versions.py").write_text(VERSIONS)
    run.start()
    with real_load(replica_set, database, documents=7) as load:
        for fault in ("step down", "kill", "step down"):
            load.more(30)
            if fault == "kill":
                replica_set.stop_member(replica_set.primary(), signal.SIGKILL)
                replica_set.start()
            else:
                replica_set.step_down(2)
        load.more(30)
    path = run.directory / "versions"

    def versions() -> dict[int, list[int]]:
        found = defaultdict(list)
        for line in path.read_text().splitlines():
            key, number = map(int, line.split())
            found[key].append(number)
        return dict(found)

    expected = {key: list(range(key, load.written, 7)) for key in range(7)}
    until(lambda: sum(map(len, versions().values())) >= load.written, "every change")
    assert run.stop() == 0
    assert versions() == expected


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_stops_and_a_start_while_nobody_is_primary(
    replica_set: ReplicaSet, database: str, daemon: Make, driver: str
) -> None:
    """All end at once and well: of a run, of a start, and of a run that cannot begin anew."""
    run = following(replica_set, database, daemon, driver)
    with replica_set.client() as client:
        client[database].orders.insert_one({"_id": 0})
    run.until_events(1)
    with replica_set.without_primary():
        for member in replica_set.running:
            replica_set.fail("getMore", member=member, appName="tailrace", errorCode=8000)
        until(lambda: run.status()["restarts"] == 1, "the failure")
        until(lambda: run.status()["state"] == "starting", "the search for a primary")
        assert run.stop() == 0, run.log
        run.start(ready=False)
        until(lambda: run.logged("service.starting")[1:], "the start")
        assert run.stop() == 0, run.log
    for member in replica_set.running:
        replica_set.fail("getMore", "off", member=member)
    with replica_set.client() as client:
        client[database].orders.insert_one({"_id": 1})
    run.start()
    assert_whole(run, 2)
