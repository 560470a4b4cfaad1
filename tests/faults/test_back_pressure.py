"""Handlers that stall in front of a backlog: memory stays flat, others go on, nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.test_memory import resident_bytes
from tests.scripted import Behaviour, ScriptedSet, encoded_inserts

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

BUDGET, REPLY = 8_000_000, 1_000_000
EVENTS, EVENT_BYTES = 12_000, 12_000
MOST_BYTES = 120_000_000  # the process alone has 70 MB; the backlog would be 144 MB more

HANDLERS = """
from pathlib import Path

import anyio

file = open("handled", "a", buffering=1)


async def quick(event):
    pass


async def stalled(event):
    while not Path("go on").exists():
        await anyio.sleep(0.05)
    print(event.document_key["_id"], file=file)
"""


@pytest.fixture
def server() -> Any:
    with ScriptedSet(behaviour=Behaviour(reply_bytes=REPLY)) as server:
        yield server


def stalling(make: Make, server: ScriptedSet, **sections: Any) -> Daemon:
    """A quick handler lets the reader go on while another stalls, until the budget is spent."""
    scope = {"database": "shop", "max_await_time_ms": 200}
    run = make(
        server.uri,
        delivery={"max_in_flight_bytes": BUDGET, "lanes": 1},
        scopes=[{"name": name, "collection": name, **scope} for name in ("orders", "users")],
        handlers={
            "quick": {"type": "python", "target": "mine:quick"},
            "stalled": {"type": "python", "target": "mine:stalled"},
            "file": {"type": "jsonl", "path": "events.jsonl"},
        },
        routes=[
            {"scope": "orders", "handlers": ["quick", "stalled"]},
            {"scope": "users", "handlers": ["file"]},
        ],
        **sections,
    )
    (run.directory / "mine.py").write_text(HANDLERS)
    run.start()
    raw = encoded_inserts("shop.orders", EVENTS, EVENT_BYTES, server.cluster_time)
    server.append_raw(raw, namespace="shop.orders")
    until(lambda: run.status()["state"] == "paused", "the pause", seconds=60)
    return run


def test_a_backlog_waits_at_the_server_and_a_killed_cursor_loses_none_of_it(
    server: ScriptedSet, daemon: Make
) -> None:
    run = stalling(daemon, server, http={"port": 0, "liveness_seconds": 0.5})
    # Its own part and the common one; the other scope's part stays free.
    reach = BUDGET * 3 // 4
    held = run.metric("tailrace_in_flight_bytes", scope="orders")
    assert held is not None
    assert reach - REPLY - EVENT_BYTES <= held <= reach
    assert run.metric("tailrace_watcher_state", scope="orders", state="paused") == 1

    def silent_seconds() -> float:
        last = run.metric("tailrace_last_round_trip_timestamp_seconds", scope="orders")
        return time.time() - (last or time.time())

    until(lambda: silent_seconds() > 1, "that the server has not been asked for long")
    assert run.get("/livez")[0] == 200
    assert run.metric("tailrace_in_flight_bytes", scope="orders") == held

    assert server.kill_cursors() >= 1
    (run.directory / "go on").touch()
    handled = run.directory / "handled"
    until(lambda: handled.read_text().count("\n") == EVENTS, "every event", seconds=120)
    assert run.metric("tailrace_stream_resumes_total", scope="orders", reason="CursorNotFound") == 1
    assert run.status()["restarts"] == 0
    until(lambda: run.metric("tailrace_in_flight_bytes", scope="orders") == 0, "an empty line")
    peak = resident_bytes(run, "VmHWM")
    assert run.stop() == 0
    assert list(map(int, handled.read_text().split())) == list(range(EVENTS))
    assert peak < MOST_BYTES, f"{peak / 1e6:.0f} MB"


def test_another_scope_goes_on_meanwhile(server: ScriptedSet, daemon: Make) -> None:
    run = stalling(daemon, server)
    for number in range(5):
        raw = encoded_inserts("shop.users", 400, EVENT_BYTES, server.cluster_time)
        server.append_raw(raw, namespace="shop.users")
        run.until_events(400 * (number + 1))
    assert run.status()["state"] == "paused"
    assert run.metric("tailrace_events_handled_total", scope="orders", handler="stalled") == 0
    (run.directory / "go on").touch()
    assert run.stop() == 0
