"""A file of events on a disk that is full for a while: the events wait, and none is set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.chaos.disk import fill, small_disk
from tests.mongod import ReplicaSet


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        yield tmp_path / "disk"


def test_a_full_disk_is_waited_out(
    mongod: ReplicaSet, database: str, daemon: Callable[..., Daemon], disk: Path
) -> None:
    """More events fail than may be set aside in a row; all are there once, in their order."""
    scope = {"name": "orders", "database": database, "max_await_time_ms": 200}
    handlers: dict[str, Any] = {
        "file": {
            "type": "jsonl",
            "path": str(disk / "events.jsonl"),
            "retry": {"attempts": 2, "first_seconds": 0.01},
        }
    }
    run = daemon(mongod.uri, scopes=[scope], handlers=handlers).start()
    events = str(disk / "events.jsonl")
    with mongod.client() as client:
        orders = client[database].orders
        orders.insert_many([{"_id": number} for number in range(10)])
        run.until_events(10, events)
        ballast = fill(disk)
        orders.insert_many([{"_id": number} for number in range(10, 400)])
        until(lambda: run.status()["restarts"] > 1, "some further attempts")
        until(lambda: run.status()["state"] == "backing_off", "the state says so")
        status = run.status()
        assert f"handler 'file': {events} cannot be written: No space left" in status["last_error"]
        assert "free some space" in status["last_error"]
        assert run.metric("tailrace_watcher_restarts_total", reason="destination")
        ballast.unlink()
        run.until_events(400, events)
    assert run.stop() == 0
    assert run.ids(events) == list(range(400))
    assert run.command("dead-letters", "list").strip() == "No dead letters."
    assert "Traceback" not in run.log
