"""The server is gone: the lag, a metric and the status show it."""

import json
import signal
import time
from itertools import pairwise
from typing import Any

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import QUICK

STAGES = ("read", "handled", "committed")
SOON_SECONDS = 15.0
"""More than enough on a slow machine to notice an outage by the answers that do not come."""
ROUNDING_SECONDS = 2.0
"""Cluster times are whole seconds, and the last answer came shortly before the fault."""


def lags(run: Daemon) -> list[float]:
    found = [run.metric("tailrace_lag_seconds", stage=stage) for stage in STAGES]
    return [lag for lag in found if lag is not None]


def server_of(run: Daemon) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(run.get("/status")[1])["server"]
    return status


def test_the_lag_grows_from_the_last_answer_on_and_ends_with_the_next_one(
    mortal: ReplicaSet, daemon: Make
) -> None:
    """A stopped server does not answer, but its connections stay open. ``browser`` kills it.

    The lag is shown within the first seconds, and is never longer than the outage.
    """
    run = daemon(mortal.uri + QUICK).start()
    until(lambda: run.metric("tailrace_oplog_window_seconds") is not None, "the oplog's window")
    until(lambda: lags(run) == [0, 0, 0], "no lag")
    assert run.metric("tailrace_server_up") == 1
    assert server_of(run)["unreachable_since"] is None
    window = run.metric("tailrace_oplog_window_seconds")

    began = time.monotonic()
    mortal.signal_member(0, signal.SIGSTOP)
    until(lambda: lags(run) and min(lags(run)) > 0, "a lag at every stage")
    seen = [lags(run)]
    assert max(seen[0]) < SOON_SECONDS
    until(lambda: run.metric("tailrace_server_up") == 0, "that the server is unreachable")
    for _ in range(3):
        until(lambda: min(lags(run)) > max(seen[-1]), "a lag that has grown")
        seen.append(lags(run))
        assert max(seen[-1]) < time.monotonic() - began + ROUNDING_SECONDS
    assert all(len(each) == len(STAGES) for each in seen), seen
    assert all(later > sooner for sooner, later in pairwise(map(min, seen)))
    server = server_of(run)
    assert server["up"] is False
    assert server["unreachable_since"] == server["last_answer"]
    # The time of the last read stays, and shows how old it is.
    assert run.metric("tailrace_oplog_window_seconds") == window
    assert (run.metric("tailrace_oplog_window_age_seconds") or 0) >= min(seen[-1])
    # Restarting the process would not bring the server back.
    assert run.get("/livez")[0] == 200
    until(lambda: run.get("/readyz")[0] == 503, "that the scope does not read")

    mortal.signal_member(0, signal.SIGCONT)
    until(lambda: run.metric("tailrace_server_up") == 1, "the server's return", 90)
    until(lambda: lags(run) == [0, 0, 0], "no lag again", 90)
    assert server_of(run)["unreachable_since"] is None
    assert run.stop() == 0
