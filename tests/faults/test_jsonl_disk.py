"""The disk of the events file is full for a while: events wait, and none becomes a dead letter."""

from pathlib import Path

from tests.daemon import until
from tests.faults.disk import fill
from tests.orders import Orders


def test_a_full_disk_is_waited_out(orders: Orders, disk: Path) -> None:
    """More events fail than may become dead letters in a row; each is written once, in order."""
    events = str(disk / "events.jsonl")
    retry = {"attempts": 2, "first_seconds": 0.01}
    handlers = {"file": {"type": "jsonl", "path": events, "retry": retry}}
    run = orders.daemon(handlers=handlers).start()
    orders.insert(*range(10))
    run.until_events(10, events)
    ballast = fill(disk)
    orders.insert(*range(10, 400))
    until(lambda: run.status()["restarts"] > 1, "some further attempts")
    until(lambda: run.status()["state"] == "backing_off", "the state says so")
    error = run.status()["last_error"]
    assert f"handler 'file': {events} cannot be written: No space left" in error
    assert "free some space" in error
    assert run.metric("tailrace_watcher_restarts_total", reason="destination")
    ballast.unlink()
    run.until_events(400, events)
    assert run.stop() == 0
    assert run.ids(events) == list(range(400))
    assert run.command("dead-letters", "list").strip() == "No dead letters."
    assert "Traceback" not in run.log
