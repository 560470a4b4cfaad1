"""A handler call that outlives the lease of its process: the process says so, and others follow."""

import os
import signal
import time

import pytest

from tests.daemon import Daemon, until
from tests.faults.odd import Odd
from tests.orders import Orders
from tests.replicas import STEADY_SECONDS, Replicas

SOURCE = """
import os
import time

import anyio
import anyio.to_thread

SHARED, NAME = os.environ["SHARED"], os.environ["NAME"]


def held():
    while os.path.exists("hang"):
        time.sleep(0.02)


async def in_a_thread():
    await anyio.to_thread.run_sync(held)


async def swallowing():
    while os.path.exists("hang"):
        try:
            await anyio.sleep(0.05)
        except anyio.get_cancelled_exc_class():
            pass


async def note(event, scope, epoch):
    with open(SHARED, "a") as file:
        file.write(f"{scope} {epoch} {NAME} {event.document_key['_id']}\\n")
    if os.path.exists("hang"):
        await HANGS()
"""
MOST_CORE = 0.15
"""Of a core, beside a process with nothing to do."""


def cores(*runs: Daemon, seconds: float = 4) -> list[float]:
    """The share of a core that each process uses meanwhile: its own CPU time per second."""

    def used(run: Daemon) -> float:
        assert run.process is not None
        with open(f"/proc/{run.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before, began = list(map(used, runs)), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return [(used(run) - spent) / took for run, spent in zip(runs, before, strict=True)]


@pytest.mark.parametrize("hangs", ["in_a_thread", "swallowing"])
def test_a_scope_whose_lease_is_gone_is_not_shown_as_followed(orders: Orders, hangs: str) -> None:
    """Its handler call goes on, so that its process can only wait; it does so without spinning."""
    replicas = Replicas(orders, lease=STEADY_SECONDS)
    replicas.source = SOURCE.replace("HANGS", hangs)
    (one,) = replicas.start("one", shutdown={"grace_seconds": 1})
    (one.directory / "hang").touch()
    orders.insert(1)
    replicas.until_noted(1)
    (two,) = replicas.start("two")
    one.signal(signal.SIGSTOP)
    two.command("scopes", "release", "orders")
    replicas.until_owner(two)
    one.signal(signal.SIGCONT)
    until(lambda: one.logged("lease.lost"), "that it knows")
    gone = {"owner": "two", "epoch": 3, "held": False}
    until(lambda: one.status().get("lease") == gone, "that it knows of the next owner")
    assert one.status()["state"] == "standby"
    assert one.status()["reason"].startswith("two follows it; this process cannot follow it")
    assert "'note'" in one.status()["reason"]
    code, answer = one.get("/readyz")
    assert (code, "degraded" in answer) == (200, True), answer
    stuck, idle = cores(one, two)
    assert stuck < idle + MOST_CORE
    two.kill()
    one.command("scopes", "release", "orders")
    nobody = "scope orders: standby: no process follows it"
    until(lambda: nobody in one.get("/readyz")[1], "that nobody follows it")
    code, answer = one.get("/readyz")
    assert (code, "handler 'note'" in answer) == (503, True), answer
    assert one.status()["position"] is None
    assert one.metric("tailrace_lease_held", scope="orders") == 0
    assert one.metric("tailrace_watcher_state", scope="orders", state="standby") == 1
    (three,) = replicas.start("three")
    replicas.until_owner(three)
    orders.insert(2)
    replicas.until_noted(2)
    assert replicas.noted[-1].process == "three"
    (one.directory / "hang").unlink()
    until(lambda: one.status()["reason"] == "three follows it", "the end of the call")
    assert one.get("/readyz")[0] == 200
    replicas.stop()


def test_a_handler_that_swallows_its_time_limit_is_waited_for_without_spinning(
    orders: Orders,
) -> None:
    odd = Odd(orders, "swallows", handler={"timeout_seconds": 0.1})
    odd.run.start()
    (idle,) = cores(odd.run)
    odd.insert(1)
    until(lambda: odd.run.logged("handler.overdue"), "the warning")
    (waiting,) = cores(odd.run)
    assert waiting < idle + MOST_CORE
    odd.open()
    odd.until_noted("ended", 1)
    odd.ends_well()
