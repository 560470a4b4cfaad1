"""SIGKILL around an invalidate of a real server: the restart continues after what was handled.

Kills at any other step are in tests/simulation.
"""

import os
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import Orders

WHOLE = ["insert", "drop", "invalidate", "insert"]


@pytest.fixture
def orders(mongod: ReplicaSet, database: str, daemon: Make) -> Orders:
    """With the driver's own time limits: a connection that a busy machine accepts late is no
    further start of the stream, which these tests count."""
    made = Orders(mongod, database, daemon)
    made.uri = mongod.uri
    return made


def kinds(run: Daemon) -> list[str]:
    return [event["operationType"] for event in run.events()]


def starts(run: Daemon) -> list[str]:
    """The start option with which each run of the scope opened its stream."""
    return [entry["at"].split()[0] for entry in run.logged("stream.starting")]


def checkpoint(run: Daemon) -> dict[str, Any]:
    return run.status().get("checkpoint") or {}


def reading(orders: Orders) -> Daemon:
    """A daemon that has handled one event and saved its position."""
    run = orders.daemon().start()
    orders.insert(0)
    run.until_events(1)
    until(lambda: checkpoint(run).get("kind") == "event", "its checkpoint")
    return run


def assert_goes_on(run: Daemon, orders: Orders) -> None:
    """After a restart it reaches the next event without a back-off, and stops cleanly."""
    run.start()
    orders.insert(1)
    until(lambda: run.ids()[-1:] == [1], "the event behind the invalidate")
    assert run.stop() == 0
    assert "watcher.restarting" not in run.log


def test_a_crash_before_an_invalidate_is_delivered(orders: Orders) -> None:
    run = reading(orders)
    run.kill()
    orders.drop()
    assert_goes_on(run, orders)
    assert kinds(run) == WHOLE
    assert starts(run) == ["startAtOperationTime", "resumeAfter", "startAfter"]


def test_a_crash_between_the_checkpoint_of_an_invalidate_and_the_reopening(orders: Orders) -> None:
    """The aggregate after the invalidate is refused until the process is killed."""
    run = reading(orders)
    orders.server.fail("aggregate", "alwaysOn", appName="tailrace", errorCode=11600)
    orders.drop()
    until(lambda: starts(run)[1:], "the reopening")
    until(lambda: checkpoint(run).get("kind") == "invalidate", "its checkpoint")
    run.kill()
    orders.server.fail("aggregate", "off")
    os.truncate(run.directory / "log", 0)
    assert_goes_on(run, orders)
    assert kinds(run) == WHOLE
    assert starts(run) == ["startAfter"]


def test_a_crash_after_an_invalidate_and_before_the_next_event(orders: Orders) -> None:
    """Idle positions advance, but only startAfter accepts them."""
    run = reading(orders)
    orders.drop()
    until(lambda: kinds(run)[-1] == "invalidate", "the invalidate")
    until(lambda: starts(run)[1:], "the reopening")
    before = until(lambda: checkpoint(run).get("sequence"), "a position")
    until(lambda: checkpoint(run)["sequence"] > before, "an idle position")
    assert checkpoint(run)["kind"] == "invalidate"
    run.kill()
    assert_goes_on(run, orders)
    assert kinds(run) == WHOLE
    assert starts(run) == ["startAtOperationTime", "startAfter", "startAfter"]
