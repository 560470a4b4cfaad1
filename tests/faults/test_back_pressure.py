"""Handlers that stall in front of a backlog: memory stays flat, others go on, nothing is lost."""

from __future__ import annotations

import time
from typing import Any

from tests.daemon import Daemon, until
from tests.faults.test_memory import resident_bytes
from tests.orders import Orders

BUDGET, REPLY, EVENT_BYTES = 8_000_000, 80, 12_000
EVENTS = 8_000
MOST_BYTES = 120_000_000  # the process alone has 70 MB; the backlog would be 96 MB more

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


def stalling(orders: Orders, **sections: Any) -> Daemon:
    """A quick handler lets the reader go on while another stalls, until the budget is spent."""
    run = orders.daemon(
        source=HANDLERS,
        delivery={"max_in_flight_bytes": BUDGET, "lanes": 1},
        scopes=[
            orders.scope(name=name, collection=name, batch_size=REPLY)
            for name in ("orders", "users")
        ],
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
    run.start()
    write(orders, range(EVENTS))
    until(lambda: run.status()["state"] == "paused", "the pause", seconds=60)
    return run


def write(orders: Orders, numbers: range, collection: str = "orders") -> None:
    for first in range(0, len(numbers), 1000):
        some = numbers[first : first + 1000]
        orders.insert(*some, collection=collection, text="x" * EVENT_BYTES)


def test_a_backlog_waits_at_the_server_and_a_killed_cursor_loses_none_of_it(orders: Orders) -> None:
    run = stalling(orders, http={"port": 0, "liveness_seconds": 0.5})
    # Its own part and the common one; the other scope's part stays free.
    reach = BUDGET * 3 // 4
    held = run.metric("tailrace_in_flight_bytes", scope="orders")
    assert held is not None
    assert reach - 2 * REPLY * EVENT_BYTES <= held <= reach
    assert run.metric("tailrace_watcher_state", scope="orders", state="paused") == 1

    def silent_seconds() -> float:
        last = run.metric("tailrace_last_round_trip_timestamp_seconds", scope="orders")
        return time.time() - (last or time.time())

    until(lambda: silent_seconds() > 1, "that the server has not been asked for long")
    assert run.get("/livez")[0] == 200
    assert run.metric("tailrace_in_flight_bytes", scope="orders") == held

    assert orders.server.kill_cursors(orders.database) >= 1
    (run.directory / "go on").touch()
    handled = run.directory / "handled"
    until(lambda: handled.read_text().count("\n") == EVENTS, "every event", seconds=120)
    assert run.metric("tailrace_stream_resumes_total", scope="orders", reason="CursorNotFound") == 1
    assert run.status()["restarts"] == 0
    until(lambda: run.metric("tailrace_in_flight_bytes", scope="orders") == 0, "nothing in flight")
    peak = resident_bytes(run, "VmHWM")
    assert run.stop() == 0
    assert list(map(int, handled.read_text().split())) == list(range(EVENTS))
    assert peak < MOST_BYTES, f"{peak / 1e6:.0f} MB"


def test_another_scope_goes_on_meanwhile(orders: Orders) -> None:
    run = stalling(orders)
    for number in range(3):
        write(orders, range(400 * number, 400 * (number + 1)), "users")
        run.until_events(400 * (number + 1))
    assert run.status()["state"] == "paused"
    assert run.metric("tailrace_events_handled_total", scope="orders", handler="stalled") == 0
    (run.directory / "go on").touch()
    assert run.stop() == 0
