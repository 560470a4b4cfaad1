"""Lag on a real daemon: exact in the server's time, whatever this machine's clock shows."""

from datetime import UTC, datetime

import pytest

from tests.daemon import Daemon, Make, gated, until
from tests.local_clock import wrong_by
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

BREACHED = "tailrace_freshness_breached"
NO_LAG = {"read": 0.0, "handled": 0.0, "committed": 0.0}


def lags(run: Daemon) -> dict[str, float | None]:
    stages = ("read", "handled", "committed")
    return {stage: run.metric("tailrace_lag_seconds", stage=stage) for stage in stages}


def until_lags(run: Daemon, wanted: dict[str, float]) -> None:
    try:
        until(lambda: lags(run) == wanted, f"the lags {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; they are {lags(run)}") from None


def until_idle(run: Daemon, server: ScriptedSet, seconds: int) -> None:
    """Waits until the server's time has passed and the stream has noticed."""
    now = server.noop(seconds).as_datetime().isoformat()
    until(lambda: (run.status()["position"] or {}).get("cluster_time") == now, "the new time")
    until_lags(run, NO_LAG)


@pytest.fixture(params=["", "+400d"], ids=["right", "400 days ahead"])
def local_clock(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process whose clock is wrong by ``offset``."""
    offset: str = request.param
    return wrong_by(offset) if offset else {}


def test_the_lag_is_exact_at_every_stage_under_any_local_clock(
    scripted: ScriptedSet, daemon: Make, local_clock: dict[str, str]
) -> None:
    run = daemon(scripted.uri)
    open_gate = gated(run)
    run.configuration["routes"][0]["max_lag"] = "110s"
    run.environ = local_clock
    run.start()
    assert (_year_of(run) != datetime.now(UTC).year) == bool(local_clock)
    until_idle(run, scripted, 5)
    scripted.insert("shop.orders", {"_id": 1})
    scripted.noop(100)
    until_lags(run, {"read": 0, "handled": 100, "committed": 100})
    assert run.metric(BREACHED, handler="file") == 0
    scripted.noop(20)
    until_lags(run, {"read": 0, "handled": 120, "committed": 120})
    assert run.metric(BREACHED, handler="file") == 1
    late = "scope orders: handler 'file' is 120 s behind, and its max_lag is 110 s"
    assert late in run.get("/readyz")[1]
    assert run.get("/readyz")[0] == 200
    open_gate()
    until_lags(run, NO_LAG)
    until_idle(run, scripted, 3600)
    assert run.metric(BREACHED, handler="file") == 0
    assert run.stop() == 0


def _year_of(run: Daemon) -> int:
    """The year by the daemon's own clock; 400 days lead to another year."""
    (entry,) = run.logged("service.starting")
    return int(entry["timestamp"][:4])


OPLOG_WINDOW = "tailrace_oplog_window_seconds"


def test_the_oplog_window_is_what_the_server_says(mongod: ReplicaSet, daemon: Make) -> None:
    run = daemon(mongod.uri).start()
    until(lambda: run.metric(OPLOG_WINDOW) is not None, "the oplog's window")
    with mongod.client() as client:
        oplog = client.local["oplog.rs"]
        times = [oplog.find_one(sort=[("$natural", order)], projection=["ts"]) for order in (1, -1)]
        sizes = client.local.command("collStats", "oplog.rs")
    first, last = (entry["ts"].time for entry in times if entry)
    assert 0 <= (run.metric(OPLOG_WINDOW) or 0) <= last - first
    fill = run.metric("tailrace_oplog_fill_ratio")
    assert fill is not None
    assert abs(fill - sizes["size"] / sizes["maxSize"]) < 0.1
    assert run.stop() == 0
