"""Elections on three real members: the stream moves to the member that its read preference wants.

mongod lets a member that stepped down, or was elected, keep serving its cursors.
"""

import signal

import pytest

from tests.daemon import Daemon, Make, until
from tests.load import assert_whole
from tests.mongod import ReplicaSet
from tests.orders import Orders


@pytest.fixture
def orders(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


def owners(orders: Orders) -> list[int]:
    """The members that have a cursor of the service."""
    return [member for member, *_ in orders.server.streams(orders.database)]


def assert_moved(run: Daemon) -> None:
    """A monitor that learns of the next primary first forgets the old one: reason `network`."""
    reasons = {entry["reason"] for entry in run.logged("stream.resumed")}
    assert reasons
    assert reasons <= {"read_preference", "network"}
    assert run.status()["restarts"] == 0


@pytest.mark.parametrize(
    ("driver", "preference"), [("motor", "primary"), ("pymongo", "primaryPreferred")]
)
def test_after_a_step_down_the_stream_continues_at_the_next_primary(
    orders: Orders, driver: str, preference: str
) -> None:
    run = orders.daemon(driver=driver, scope={"read_preference": preference}).start()
    with orders.load() as writing:
        writing.more()
        old = orders.server.primary()
        until(lambda: owners(orders) == [old], "the cursor at the primary")
        new = orders.server.step_down()
        assert new != old
        until(lambda: owners(orders) == [new], "the cursor at the next primary")
        writing.more()
    assert_moved(run)
    assert_whole(run, writing.written)


def test_primary_preferred_reads_a_secondary_while_there_is_no_primary(orders: Orders) -> None:
    run = orders.daemon(scope={"read_preference": "primaryPreferred"}).start()
    with orders.load() as writing:
        writing.more()
    old = orders.server.primary()
    with orders.server.without_primary():
        orders.server.stop_member(old, signal.SIGKILL)
        until(lambda: set(owners(orders)) - {old}, "the cursor at a secondary")
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
    orders.server.start()
    assert run.status()["restarts"] == 0
    assert_whole(run, writing.written)
