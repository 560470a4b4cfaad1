"""The disk of the events file is full for a while: events wait, and none becomes a dead letter."""

from pathlib import Path

from tests.daemon import until
from tests.faults.disk import fill
from tests.orders import Orders


def test_a_full_disk_of_the_events_file_is_waited_out(orders: Orders, disk: Path) -> None:
    """The scope keeps its stream and waits for the file; each event is written once, in order."""
    events = str(disk / "events.jsonl")
    retry = {"attempts": 2, "first_seconds": 0.01}
    handlers = {"file": {"type": "jsonl", "path": events, "retry": retry}}
    run = orders.daemon(handlers=handlers).start()
    orders.insert(*range(10))
    run.until_events(10, events)
    ballast = fill(disk)
    orders.insert(*range(10, 400))
    until(lambda: run.status()["state"] == "waiting", "the state says so")
    reason = run.status()["reason"]
    assert f"handler 'file': {events} cannot be written: No space left" in reason
    assert "free some space" in reason
    assert run.metric("tailrace_destination_up", scope="orders", handler="file") == 0
    ballast.unlink()
    run.until_events(400, events)
    assert run.metric("tailrace_destination_up", scope="orders", handler="file") == 1
    assert run.status()["restarts"] == 0
    assert run.stop() == 0
    assert run.ids(events) == list(range(400))
    assert run.command("dead-letters", "list").strip() == "No dead letters."
    assert "Traceback" not in run.log
