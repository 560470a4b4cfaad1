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
MOST_BYTES = 160_000_000
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
        raw = encoded_inserts("shop.orders", EVENTS, EVENT_BYTES, server.cluster_time)
        server.append_raw(raw, namespace="shop.orders")
        until(
            lambda: run.metric("tailrace_events_handled_total", outcome="ok") == EVENTS,
            "every event",
        )
        peak = peak_bytes(run)
        assert run.metric("tailrace_in_flight_bytes", scope="orders") == 0
        assert run.stop() == 0
        assert peak < MOST_BYTES, f"{peak / 1e6:.0f} MB"


def peak_bytes(run: Daemon) -> int:
    assert run.process is not None
    with open(f"/proc/{run.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
