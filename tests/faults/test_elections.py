"""Primaries change while changes are written: nothing is lost, repeated or out of order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.conftest import QUICK
from tests.faults.load import assert_whole, scripted_load, until_resumed
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


def following(server: ScriptedSet, daemon: Make, driver: str, **sections: Any) -> Daemon:
    uri = server.uri + QUICK
    return daemon(uri, mongodb={"uri": uri, "driver": driver}, **sections).start()


def resumes(run: Daemon) -> float:
    return sum(
        float(line.rpartition(" ")[2])
        for line in run.get("/metrics")[1].splitlines()
        if line.startswith("tailrace_stream_resumes_total{")
    )


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_five_elections_under_load(three: ScriptedSet, daemon: Make, driver: str) -> None:
    run = following(three, daemon, driver)
    faults: list[tuple[int, bool]] = [
        (10107, False),
        (11602, True),
        (91, False),
        (11602, False),
        (10107, True),
    ]
    with scripted_load(three) as load:
        for number, (code, cut) in enumerate(faults, start=1):
            load.more()
            three.step_down(successor=number % 3, interrupt=code, close_connections=cut)
            until_resumed(run, number)
            assert run.get("/readyz")[0] == 200
        load.more()
    assert run.status()["restarts"] == 0
    assert run.status()["resumes"] == resumes(run) == 5
    primaries = {c.member for c in three.commands("aggregate") if c.change_stream}
    assert primaries == {0, 1, 2}
    assert_whole(run, load.written)


def test_a_flapping_primary(three: ScriptedSet, daemon: Make) -> None:
    """No primary for two seconds, then another, again: one resume waits for each."""
    run = following(three, daemon, "motor")
    with scripted_load(three, 0.05) as load:
        for number, (member, seconds) in enumerate(((1, 2.0), (2, 0.5), (0, 0.5)), start=1):
            three.step_down(interrupt=11602)
            until(lambda: run.get("/readyz")[0] == 503, "that it is not ready without a primary")
            assert "11602" in run.status()["last_error"]
            three.clear()
            with pytest.raises(TimeoutError):
                three.wait_for("aggregate", seconds)
            three.elect(member)
            until_resumed(run, number)
            until(lambda: run.get("/readyz")[0] == 200, "readiness")
    assert run.status()["restarts"] == 0
    assert_whole(run, load.written)


def test_a_stream_on_a_secondary_stays_there_until_that_is_elected(
    three: ScriptedSet, daemon: Make
) -> None:
    scope = {"name": "orders", "database": "shop", "collection": "orders"}
    quick = {**scope, "max_await_time_ms": 200, "read_preference": "secondary"}
    run = following(three, daemon, "pymongo", scopes=[quick])
    with scripted_load(three) as load:
        load.more()
        (home,) = {c.member for c in three.commands("getMore")}
        assert home != 0
        three.step_down(successor=3 - home, interrupt=11602)
        load.more()
        assert run.status()["resumes"] == 0
        three.elect(home)
        until_resumed(run, 1)
        load.more()
    assert run.metric("tailrace_stream_resumes_total", reason="read_preference") == 1
    assert home not in {c.member for c in three.commands("getMore")[-5:]}
    assert_whole(run, load.written)


def test_without_a_primary_a_preference_for_it_takes_a_secondary(
    three: ScriptedSet, daemon: Make
) -> None:
    scope = {"name": "orders", "database": "shop", "collection": "orders"}
    quick = {**scope, "max_await_time_ms": 200, "read_preference": "primaryPreferred"}
    run = following(three, daemon, "motor", scopes=[quick])
    with scripted_load(three) as load:
        load.more()
        three.kill_cursors()  # by the next one the driver knows all members, and which is primary
        until_resumed(run, 1)
        load.more()
        assert three.commands("getMore")[-1].member == 0
        three.stop_member(0)
        until_resumed(run, 2)
        load.more()
    assert three.commands("getMore")[-1].member != 0
    assert run.get("/readyz")[0] == 200
    assert_whole(run, load.written)
