"""SIGTERM while the service waits for something: it ends at once, well, and resumes later."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.conftest import QUICK
from tests.faults.load import NAMESPACE, assert_whole
from tests.scripted import RESUMABLE, Command, ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]
DRIVERS = pytest.mark.parametrize("driver", ["motor", "pymongo"])


def reading(server: ScriptedSet, daemon: Make, driver: str = "motor", **sections: Any) -> Daemon:
    """A daemon that has handled one event."""
    uri = server.uri + QUICK
    run = daemon(uri, mongodb={"uri": uri, "driver": driver}, **sections).start()
    server.insert(NAMESPACE, {"_id": 0})
    run.until_events(1)
    return run


def assert_stops_at_once(run: Daemon) -> None:
    """Within its grace, which is far below what it was waiting for: else the code would be 3."""
    assert run.stop() == 0, run.log
    assert "Traceback" not in run.log


def test_reads_that_always_fail_are_resumed_ever_more_slowly(
    scripted: ScriptedSet, daemon: Make
) -> None:
    run = reading(scripted, daemon)
    scripted.clear()
    failing = scripted.fail("getMore", times=None, code=8000, labels=[RESUMABLE])
    resumed = scripted.wait_for("aggregate", 10, count=5)
    gaps = [later.at - earlier.at for earlier, later in pairwise(resumed)]
    for number, gap in enumerate(gaps):
        assert gap >= 0.1 * 2**number / 2, gaps
    assert gaps[-1] > 2 * gaps[0]
    # Between two attempts the scope does not read, and says so.
    until(lambda: run.get("/readyz")[0] == 503, "the wait for the next attempt")
    until(lambda: "8000" in run.status()["reason"], "the reason")
    assert run.get("/livez")[0] == 200

    def resumes() -> list[float | None]:
        count = run.metric("tailrace_stream_resumes_total", reason="Location8000")
        return [count, run.status()["resumes"], len(scripted.commands("aggregate"))]

    until(lambda: len(set(resumes())) == 1, "that metric, status and server count alike")
    assert_stops_at_once(run)
    failing.disarm()
    run.start()
    scripted.insert(NAMESPACE, {"_id": 1})
    assert_whole(run, 2)


def test_in_the_middle_of_a_back_off(scripted: ScriptedSet, daemon: Make) -> None:
    run = reading(scripted, daemon, supervisor={"first_seconds": 30, "cap_seconds": 30})
    scripted.fail("getMore", code=8000)
    until(lambda: run.status()["state"] == "backing_off", "the failure")
    assert run.logged("watcher.restarting")[0]["delay_seconds"] >= 15
    assert_stops_at_once(run)


@DRIVERS
def test_while_a_resume_looks_for_a_primary(three: ScriptedSet, daemon: Make, driver: str) -> None:
    run = reading(three, daemon, driver)
    three.step_down(interrupt=11602)
    three.insert(NAMESPACE, {"_id": 1})
    until(lambda: run.status()["state"] == "starting", "the resume")
    assert_stops_at_once(run)
    three.elect(1)
    run.start()
    assert_whole(run, 2)


@DRIVERS
def test_while_the_first_open_looks_for_a_primary(
    three: ScriptedSet, daemon: Make, driver: str
) -> None:
    def step_down_behind_the_probe(command: Command) -> None:
        if command.name == "replSetGetConfig" and three.primary is not None:
            three.step_down()

    three.on_command(step_down_behind_the_probe)
    run = daemon(three.uri, mongodb={"uri": three.uri, "driver": driver}).start(ready=False)
    until(lambda: run.logged("stream.starting"), "the first open")
    assert three.primary is None
    assert_stops_at_once(run)
    assert not three.commands("aggregate")


def test_while_the_start_looks_for_a_primary(three: ScriptedSet, daemon: Make) -> None:
    three.step_down()
    run = daemon(three.uri).start(ready=False)
    until(lambda: three.commands("hello"), "the driver")
    assert_stops_at_once(run)


@DRIVERS
def test_while_an_aggregate_gets_no_answer(
    scripted: ScriptedSet, daemon: Make, driver: str
) -> None:
    run = reading(scripted, daemon, driver)
    silent = scripted.fail("aggregate", silent=True)
    scripted.kill_cursors()
    until(lambda: silent.hits, "the resume")
    assert_stops_at_once(run)
