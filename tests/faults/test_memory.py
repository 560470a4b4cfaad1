"""The largest reply that a driver takes, and the process's peak of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.scripted import Behaviour, ScriptedSet, encoded_inserts

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

REPLY_BYTES = 47_000_000  # below maxMessageSizeBytes, above which drivers give up
MOST_BYTES = 105_000_000
"""On top of the idle process, whose size depends on what else is installed: the reply as the socket
gave it and as the driver joined it, and little more."""
EVENTS, EVENT_BYTES = 4_600, 10_000

HANDLERS: dict[str, dict[str, Any]] = {
    "jsonl": {"type": "jsonl", "path": "events.jsonl"},
    "python": {"type": "python", "target": "counting:handle"},
}


@pytest.mark.parametrize(("handler", "driver"), [("jsonl", "motor"), ("python", "pymongo")])
def test_a_reply_of_47_megabytes(daemon: Make, handler: str, driver: str) -> None:
    with ScriptedSet(behaviour=Behaviour(reply_bytes=REPLY_BYTES)) as server:
        run = daemon(
            server.uri,
            mongodb={"uri": server.uri, "driver": driver},
            handlers={"file": HANDLERS[handler]},
        )
        (run.directory / "counting.py").write_text(
            "import anyio\n"
            "async def handle(event):\n"
            "    assert len(event.full_document['payload']) > 9_000\n"
            "    await anyio.sleep(0)\n"
        )
        run.start()
        idle = resident_bytes(run, "VmRSS")
        raw = encoded_inserts("shop.orders", EVENTS, EVENT_BYTES, server.cluster_time)
        server.append_raw(raw, namespace="shop.orders")
        until(
            lambda: run.metric("tailrace_events_handled_total", outcome="ok") == EVENTS,
            "every event",
        )
        grown = resident_bytes(run, "VmHWM") - idle
        assert run.metric("tailrace_in_flight_bytes", scope="orders") == 0
        assert run.stop() == 0
        assert grown < MOST_BYTES, f"{grown / 1e6:.0f} MB more than idle"


def resident_bytes(run: Daemon, which: str) -> int:
    """``VmRSS`` now, or ``VmHWM`` at the most."""
    assert run.process is not None
    with open(f"/proc/{run.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith(f"{which}:"))
    return int(line.split()[1]) * 1024
