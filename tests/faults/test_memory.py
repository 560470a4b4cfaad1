"""The largest reply that a server sends, and the process's peak of memory."""

from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import Orders

BUDGET = 20_000_000
MOST_BYTES = 120_000_000
"""On top of the idle process, whose size depends on what else is installed: what is in flight (the
budget, and the reply that exceeds it), and a reply of 16 MB as the socket gave it and as the driver
joined it. The backlog is larger."""
EVENTS, EVENT_BYTES = 16_000, 10_000

COUNTS = f"""
import anyio


async def handle(event):
    assert len(event.full_document["text"]) == {EVENT_BYTES}
    await anyio.sleep(0)
"""
HANDLERS: dict[str, dict[str, Any]] = {
    "jsonl": {"type": "jsonl", "path": "events.jsonl"},
    "python": {"type": "python", "target": "mine:handle"},
}


@pytest.mark.parametrize(("handler", "driver"), [("jsonl", "motor"), ("python", "pymongo")])
def test_replies_of_16_megabytes(
    mongod: ReplicaSet, database: str, daemon: Make, handler: str, driver: str
) -> None:
    orders = Orders(mongod, database, daemon)
    run = orders.daemon(
        driver=driver,
        source=COUNTS,
        scope={"batch_size": EVENTS},
        delivery={"max_in_flight_bytes": BUDGET},
    )
    run.configuration["handlers"]["file"] = HANDLERS[handler]
    run.start()
    assert run.stop() == 0  # a position before the events, so that its first reply is a whole one
    for first in range(0, EVENTS, 1000):
        orders.insert(*range(first, first + 1000), text="x" * EVENT_BYTES)
    run.start(ready=False)
    until(lambda: run.logged("service.started")[1:], "the start")
    idle = resident_bytes(run, "VmRSS")
    run.until_ready()
    until(
        lambda: run.metric("tailrace_events_handled_total", outcome="ok") == EVENTS, "every event"
    )
    grown = resident_bytes(run, "VmHWM") - idle
    until(lambda: run.metric("tailrace_in_flight_bytes", scope="orders") == 0, "nothing in flight")
    assert run.stop() == 0
    assert grown < MOST_BYTES, f"{grown / 1e6:.0f} MB more than idle"


def resident_bytes(run: Daemon, which: str) -> int:
    """``VmRSS`` now, or ``VmHWM`` at the most."""
    assert run.process is not None
    with open(f"/proc/{run.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith(f"{which}:"))
    return int(line.split()[1]) * 1024
