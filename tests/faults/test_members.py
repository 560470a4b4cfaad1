"""Three real members: some die, hang or are not primary, while changes are written.

No change is lost, repeated or out of order, and the service says when it cannot read.
"""

import signal

import pytest

from tests.daemon import Make, until
from tests.load import assert_whole
from tests.mongod import ReplicaSet
from tests.orders import Orders


@pytest.fixture
def orders(replica_set: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(replica_set, database, daemon)


def home(orders: Orders) -> int:
    """The member that serves the stream."""
    found: set[int] = until(
        lambda: {member for member, *_ in orders.server.streams(orders.database)},
        "the stream's cursor",
    )
    return found.pop()


def test_a_primary_that_is_killed_is_replaced(orders: Orders) -> None:
    run = orders.daemon().start()
    with orders.load() as load:
        load.more()
        dead = home(orders)
        assert dead == orders.server.primary()
        orders.server.stop_member(dead, signal.SIGKILL)
        load.more()
        until(lambda: len(run.ids()) >= load.written - 3, "the changes at the next primary")
        assert home(orders) == orders.server.primary() != dead
        orders.server.start()
        load.more()
    assert run.status()["resumes"] + run.status()["restarts"] >= 1
    assert_whole(run, load.written)


def test_a_secondary_that_is_killed_is_left_for_another_member(orders: Orders) -> None:
    run = orders.daemon(scope={"read_preference": "secondary"}).start()
    with orders.load() as load:
        load.more()
        dead = home(orders)
        assert dead in orders.server.secondaries()
        orders.server.stop_member(dead, signal.SIGKILL)
        load.more()
        until(lambda: len(run.ids()) >= load.written - 3, "the changes at the other secondary")
        orders.server.start()
    assert_whole(run, load.written)


def test_without_a_majority_nothing_comes_and_nothing_is_lost(orders: Orders) -> None:
    """A change that no majority has is not an event. The primary steps down and comes back."""
    run = orders.daemon().start()
    with orders.load() as load:
        load.more()
        for member in orders.server.secondaries():
            orders.server.stop_member(member, signal.SIGKILL)
        until(lambda: not any(map(orders.server.leads, orders.server.running)), "the step-down")
        assert run.get("/livez")[0] == 200
        orders.server.start()
        until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
    assert_whole(run, load.written)


def test_a_start_and_stops_while_nobody_is_primary_are_clean(orders: Orders) -> None:
    """A run, a start, and a run that cannot restart all end at once and cleanly."""
    run = orders.daemon().start()
    orders.insert(0)
    run.until_events(1)
    with orders.server.without_primary():
        for member in orders.server.running:
            orders.server.fail("getMore", member=member, appName="tailrace", errorCode=8000)
        until(lambda: run.status()["restarts"] == 1, "the failure")
        until(lambda: run.status()["state"] == "starting", "the search for a primary")
        assert run.stop() == 0, run.log
        run.start(ready=False)
        until(lambda: run.logged("service.starting")[1:], "the start")
        assert run.stop() == 0, run.log
    for member in orders.server.running:
        orders.server.fail("getMore", "off", member=member)
    orders.insert(1)
    run.start()
    assert_whole(run, 2)


def test_a_member_that_applies_nothing_is_named_as_behind(orders: Orders) -> None:
    """It still answers each read, and its own time stands still."""
    run = orders.daemon(scope={"read_preference": "secondary"}).start()
    orders.insert(1)
    run.until_events(1)
    member = home(orders)
    orders.server.fail_point("rsSyncApplyStop", "alwaysOn", member=member)
    try:
        orders.insert(2)
        until(lambda: (run.metric("tailrace_lag_seconds", stage="read") or 0) > 5, "the lag")
        until(lambda: orders.server.hosts[member] in run.status()["reason"], "the reason")
        assert run.status()["state"] == "catching_up"
        assert orders.server.hosts[member] in run.get("/readyz")[1]
    finally:
        orders.server.fail_point("rsSyncApplyStop", "off", member=member)
    run.until_events(2)
    until(lambda: run.status()["reason"] == "", "the end of the reason")
    assert [log["member"] for log in run.logged("member.fallen_behind")] == [
        orders.server.hosts[member]
    ]
