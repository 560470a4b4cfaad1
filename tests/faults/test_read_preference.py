"""Elections on three real members: the stream goes on where its read preference wants it.

mongod lets a member that stepped down, or was elected, go on serving the cursors that it has.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress

import pytest
from pymongo.errors import OperationFailure

from tests.daemon import Daemon, until
from tests.faults.conftest import QUICK
from tests.faults.load import assert_whole, real_load
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

DRIVERS = ["motor", "pymongo"]


def following(
    server: ReplicaSet, daemon: Make, driver: str, database: str, preference: str
) -> Daemon:
    uri = server.uri + QUICK
    scope = {
        "name": "orders",
        "database": database,
        "collection": "orders",
        "max_await_time_ms": 200,
        "read_preference": preference,
    }
    return daemon(uri, mongodb={"uri": uri, "driver": driver}, scopes=[scope]).start()


def owners(server: ReplicaSet, database: str) -> list[int]:
    """The members that have a cursor of ours."""
    return [member for member, *_ in server.streams(database)]


def is_elected(server: ReplicaSet, member: int) -> bool:
    """Makes it stand for election; one that stepped down lately does not yet, or loses it."""
    with server.direct(member) as client, suppress(OperationFailure):
        client.admin.command("replSetStepUp")
    return server.primary() == member


def assert_moved(run: Daemon) -> None:
    """A monitor that hears of the next primary first forgets the old one: that is a `network`."""
    reasons = {entry["reason"] for entry in run.logged("stream.resumed")}
    assert reasons
    assert reasons <= {"read_preference", "network"}
    assert run.status()["restarts"] == 0


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("preference", ["primary", "primaryPreferred"])
def test_behind_a_step_down_the_stream_goes_on_at_the_next_primary(
    replica_set: ReplicaSet, database: str, daemon: Make, driver: str, preference: str
) -> None:
    run = following(replica_set, daemon, driver, database, preference)
    with real_load(replica_set, database) as writing:
        writing.more()
        old = replica_set.primary()
        until(lambda: owners(replica_set, database) == [old], "the cursor at the primary")
        new = replica_set.step_down()
        assert new != old
        until(lambda: owners(replica_set, database) == [new], "the cursor at the next primary")
        writing.more()
    assert_moved(run)
    assert_whole(run, writing.written)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_secondary_that_is_elected_is_left_for_another(
    replica_set: ReplicaSet, database: str, daemon: Make, driver: str
) -> None:
    run = following(replica_set, daemon, driver, database, "secondaryPreferred")
    with real_load(replica_set, database) as writing:
        writing.more()

        def home() -> int | None:
            found = owners(replica_set, database)
            return found[0] if len(found) == 1 and found[0] in replica_set.secondaries() else None

        until(lambda: home() is not None, "the cursor at a secondary")
        old = home()
        assert old is not None
        until(lambda: is_elected(replica_set, old), "the election of the cursor's member")
        until(lambda: home() not in (None, old), "the cursor at another secondary")
        writing.more()
    assert_moved(run)
    assert_whole(run, writing.written)


def test_without_a_primary_a_preference_for_it_takes_a_secondary(
    replica_set: ReplicaSet, database: str, daemon: Make
) -> None:
    run = following(replica_set, daemon, "motor", database, "primaryPreferred")
    with real_load(replica_set, database) as writing:
        writing.more()
    old = replica_set.primary()
    with replica_set.without_primary():
        replica_set.stop_member(old, signal.SIGKILL)
        until(lambda: set(owners(replica_set, database)) - {old}, "the cursor at a secondary")
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
    replica_set.start()
    assert run.status()["restarts"] == 0
    assert_whole(run, writing.written)
