"""The server is gone: the lag, a metric and the status show it."""

import json
import signal
from itertools import pairwise
from typing import Any

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import QUICK

STAGES = ("read", "handled", "committed")


def lags(run: Daemon) -> list[float]:
    found = [run.metric("tailrace_lag_seconds", stage=stage) for stage in STAGES]
    return [lag for lag in found if lag is not None]


def server_of(run: Daemon) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(run.get("/status")[1])["server"]
    return status


def test_the_lag_grows_while_the_server_is_gone_and_ends_when_it_is_back(
    mortal: ReplicaSet, daemon: Make
) -> None:
    """The server does not answer, but its connections stay open."""
    run = daemon(mortal.uri + QUICK).start()
    until(lambda: run.metric("tailrace_oplog_window_seconds") is not None, "the oplog's window")
    until(lambda: lags(run) == [0, 0, 0], "no lag")
    assert run.metric("tailrace_server_up") == 1
    assert server_of(run)["unreachable_since"] is None
    window = run.metric("tailrace_oplog_window_seconds")

    mortal.signal_member(0, signal.SIGSTOP)
    until(lambda: run.metric("tailrace_server_up") == 0, "that the server is unreachable", 90)
    seen = [lags(run)]
    for _ in range(3):
        until(lambda: min(lags(run)) > max(seen[-1]), "a lag that has grown")
        seen.append(lags(run))
    assert all(len(each) == len(STAGES) for each in seen), seen
    assert all(later > sooner for sooner, later in pairwise(map(min, seen)))
    server = server_of(run)
    assert server["up"] is False
    assert server["unreachable_since"] == server["last_answer"]
    # The time of the last read stays, and shows how old it is.
    assert run.metric("tailrace_oplog_window_seconds") == window
    assert (run.metric("tailrace_oplog_window_age_seconds") or 0) >= 20
    # Restarting the process would not bring the server back.
    assert run.get("/livez")[0] == 200
    assert run.get("/readyz")[0] == 503

    mortal.signal_member(0, signal.SIGCONT)
    until(lambda: run.metric("tailrace_server_up") == 1, "the server's return", 90)
    until(lambda: lags(run) == [0, 0, 0], "no lag again", 90)
    assert server_of(run)["unreachable_since"] is None
    assert run.stop() == 0
