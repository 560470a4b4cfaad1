"""Backlogs, large replies and stalled handlers: memory stays bounded, and nothing is lost."""

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders

EVENT_BYTES = 12_000
BUDGET, REPLY, EVENTS = 8_000_000, 80, 6_000
MOST_STALLED_BYTES = 45_000_000  # more than at its start; the backlog would be 72 MB

LARGE_BUDGET, LARGE_EVENTS = 20_000_000, 14_000
MOST_GROWN_BYTES = 150_000_000
"""More than the idle process, whose size depends on what is installed. Up to five blocks of 17 MB
are in use: two replies with events in flight, the reply that is read, once as the socket gave it
and once as the driver copied it, and the reply before, which the protocol keeps. Small blocks that
were allocated between them leave holes on the heap, more of them on a busy machine. Reading without
a bound would take the backlog of 168 MB, too."""

HANDLERS = f"""
from pathlib import Path

import anyio

file = open("handled", "a", buffering=1)


async def quick(event):
    assert len(event.full_document["text"]) == {EVENT_BYTES}
    await anyio.sleep(0)


async def stalled(event):
    while not Path("go on").exists():
        await anyio.sleep(0.05)
    print(event.document_key["_id"], file=file)
"""


def write(orders: Orders, numbers: range, collection: str = "orders") -> None:
    for first in range(0, len(numbers), 1000):
        some = numbers[first : first + 1000]
        orders.insert(*some, collection=collection, text="x" * EVENT_BYTES)


def resident_bytes(run: Daemon, which: str) -> int:
    """``VmRSS``, the current size, or ``VmHWM``, the peak."""
    assert run.process is not None
    with open(f"/proc/{run.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith(f"{which}:"))
    return int(line.split()[1]) * 1024


def arenas(run: Daemon) -> int:
    """The further arenas of glibc's ``malloc``: each reserves 64 MB, which end at a multiple."""
    assert run.process is not None
    with open(f"/proc/{run.process.pid}/maps") as maps:
        reserved = [line.split()[0].split("-") for line in maps if "---p 00000000 00:00 0" in line]
    return sum(int(end, 16) % (64 << 20) == 0 for _, end in reserved)


def test_a_handler_that_stalls_for_longer_than_max_in_flight_bytes_holds_nobody(
    orders: Orders,
) -> None:
    """What it has not begun waits at the server: it keeps neither memory nor another handler."""
    names = ("orders", "users")
    run = orders.daemon(
        source=HANDLERS,
        http={"port": 0, "liveness_seconds": 0.5},
        delivery={"max_in_flight_bytes": BUDGET, "lanes": 1},
        scopes=[orders.scope(name=name, collection=name, batch_size=REPLY) for name in names],
        handlers={
            "quick": {"type": "python", "target": "mine:quick"},
            "stalled": {"type": "python", "target": "mine:stalled"},
            "file": {"type": "jsonl", "path": "events.jsonl"},
        },
        routes=[
            {"scope": "orders", "handlers": ["quick", "stalled"]},
            {"scope": "users", "handlers": ["file"]},
        ],
    ).start()
    idle = resident_bytes(run, "VmRSS")
    write(orders, range(EVENTS))
    handled = "tailrace_events_handled_total"
    quick = {"scope": "orders", "handler": "quick", "outcome": "ok"}
    until(lambda: run.metric(handled, **quick) == EVENTS, "every event", seconds=120)
    held = run.metric("tailrace_in_flight_bytes", scope="orders")
    assert held is not None
    assert held <= 2 * REPLY * EVENT_BYTES
    assert run.get("/livez")[0] == 200
    # Another scope continues meanwhile.
    write(orders, range(400), "users")
    run.until_events(400)
    assert run.metric(handled, scope="orders", handler="stalled") == 0

    (run.directory / "go on").touch()
    until(lambda: len(run.numbers("handled")) == EVENTS, "every event", seconds=120)
    assert run.status()["restarts"] == 0
    until(lambda: run.metric("tailrace_in_flight_bytes", scope="orders") == 0, "nothing in flight")
    grown = resident_bytes(run, "VmHWM") - idle
    assert run.stop() == 0
    assert run.numbers("handled") == list(range(EVENTS))
    assert grown < MOST_STALLED_BYTES, f"{grown / 1e6:.0f} MB"


@pytest.mark.parametrize(("handler", "driver"), [("file", "motor"), ("mine", "pymongo")])
def test_replies_of_16_megabytes_fit_into_memory(orders: Orders, handler: str, driver: str) -> None:
    run = orders.daemon(
        driver=driver,
        source=HANDLERS,
        targets={"mine": {"target": "mine:quick"}} if handler == "mine" else None,
        scope={"batch_size": LARGE_EVENTS},
        delivery={"max_in_flight_bytes": LARGE_BUDGET},
    )
    run.start()
    assert run.stop() == 0  # saves a position before the events: the next reply is full
    write(orders, range(LARGE_EVENTS))
    run.start(ready=False)
    until(lambda: run.logged("service.started")[1:], "the start")
    idle = resident_bytes(run, "VmRSS")
    run.until_ready()
    handled = ("tailrace_events_handled_total", "ok")
    until(lambda: run.metric(handled[0], outcome=handled[1]) == LARGE_EVENTS, "every event")
    grown = resident_bytes(run, "VmHWM") - idle
    until(lambda: run.metric("tailrace_in_flight_bytes", scope="orders") == 0, "nothing in flight")
    assert arenas(run) == 0, "Motor's threads would keep memory of their own"
    assert run.stop() == 0
    assert grown < MOST_GROWN_BYTES, f"{grown / 1e6:.0f} MB more than idle"
