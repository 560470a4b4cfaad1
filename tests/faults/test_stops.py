"""SIGTERM while the service waits for something: it stops at once and cleanly, and resumes later.

``test_members`` has the case in which no member is primary.
"""

import signal
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.load import assert_whole
from tests.mongod import ReplicaSet
from tests.orders import Orders

EXCEEDED_TIME_LIMIT = 262
"""A code that says nothing about the server's state, so drivers keep using the server."""


@pytest.fixture
def orders(mortal: ReplicaSet, database: str, daemon: Make) -> Orders:
    return Orders(mortal, database, daemon)


def reading(orders: Orders, **options: Any) -> Daemon:
    """A daemon that has handled one event."""
    run = orders.daemon(**options).start()
    orders.insert(0)
    run.until_events(1)
    return run


def assert_stops_at_once(run: Daemon) -> None:
    """Within its grace period, which is far shorter than what it waited for: else the code is 3."""
    assert run.stop() == 0, run.log
    assert "Traceback" not in run.log


def assert_goes_on(run: Daemon, orders: Orders) -> None:
    orders.insert(1)
    run.start()
    assert_whole(run, 2)


def test_reads_that_always_fail_are_resumed_ever_more_slowly(orders: Orders) -> None:
    run = reading(orders)
    orders.server.fail_reads(EXCEEDED_TIME_LIMIT, "alwaysOn")
    try:
        until(lambda: run.logged("stream.resumed")[4:], "five resumes")
        resumed = run.logged("stream.resumed")[:5]
        at = [datetime.fromisoformat(entry["timestamp"]) for entry in resumed]
        gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(at)]
        assert all(gap >= 0.1 * 2**number / 2 for number, gap in enumerate(gaps)), gaps
        # Between two attempts the scope does not read, and says so.
        until(lambda: run.get("/readyz")[0] == 503, "the wait for the next attempt")
        until(lambda: f"{EXCEEDED_TIME_LIMIT}" in run.status()["reason"], "the reason")
        assert run.get("/livez")[0] == 200

        def resumes() -> list[float | None]:
            count = run.metric("tailrace_stream_resumes_total")
            return [count, run.status()["resumes"], len(run.logged("stream.resumed"))]

        until(lambda: len(set(resumes())) == 1, "that metric, status and log count alike")
        assert_stops_at_once(run)
    finally:
        orders.server.fail_reads(times="off")
    assert_goes_on(run, orders)


def test_a_stop_while_a_resume_looks_for_a_server(orders: Orders) -> None:
    run = reading(orders, driver="pymongo")
    orders.server.stop(signal.SIGKILL)
    until(lambda: run.status()["state"] == "starting", "the resume")
    assert_stops_at_once(run)
    orders.server.start()
    assert_goes_on(run, orders)
