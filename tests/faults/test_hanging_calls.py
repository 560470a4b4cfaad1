"""A handler call that hangs while its server restarts: the other documents' changes go on."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import QUICK

HASTY = QUICK + "&serverSelectionTimeoutMS=1000"


def noted(run: Daemon, where: str) -> list[int]:
    path = run.directory / where
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.parametrize("store", ["sqlite", "mongodb"])
def test_the_others_go_on_over_a_restart_of_the_server(
    mortal: ReplicaSet, database: str, daemon: Make, store: str
) -> None:
    """Where the store is on that server, too: it is asked again, and the checkpoint gets older."""
    uri = mortal.uri + HASTY
    stored = {"mongodb": {"store": {"type": "mongodb", "database": f"{database}_state"}}}
    target: dict[str, Any] = {"type": "python", "target": "odd_handlers:hangs_at_three"}
    scope = {"name": "orders", "database": database, "collection": "orders"}
    run = daemon(
        uri,
        scopes=[{**scope, "max_await_time_ms": 200}],
        handlers={"mine": target},
        routes=[{"scope": "orders", "handlers": ["mine"]}],
        **stored.get(store, {}),
    )
    source = Path(__file__).with_name("odd_handlers.py")
    (run.directory / source.name).write_bytes(source.read_bytes())
    (run.directory / "closed").touch()
    run.start()
    with mortal.client() as client:
        client[database].orders.insert_many([{"_id": n} for n in range(6)])
    until(lambda: set(noted(run, "ended")) == {0, 1, 2, 4, 5}, "all but the one that hangs")

    mortal.stop(signal.SIGKILL)
    until(lambda: run.logged("stream.reopening"), "that the stream is opened again")
    state = run.status()
    assert (state["state"], bool(state["reason"])) in {("backing_off", True), ("starting", False)}
    waited = run.logged("stream.reopening")[0]["handlers"]
    assert waited.startswith("waits for a call of handler 'mine' on {\"_id\": 3} since ")
    mortal.start()
    with mortal.client() as client:
        client[database].orders.insert_many([{"_id": n} for n in range(10, 20)])
        client[database].orders.update_one({"_id": 3}, {"$set": {"state": "paid"}})
        until(lambda: set(noted(run, "ended")) >= set(range(10, 20)), "the others' changes")
        assert noted(run, "begun").count(3) == 1, "never two attempts, nor the next of its document"
        assert run.get("/readyz")[0] == 200

        run.signal()
        until(lambda: run.status().get("state") == "draining", "the drain")
        reason = run.status()["reason"]
        assert reason.startswith("waits for a call of handler 'mine' on {\"_id\": 3} since ")
        (run.directory / "closed").unlink()
        assert run.wait() == 0, run.log
    assert noted(run, "ended").count(3) in (1, 2)
    run.start()
    until(lambda: noted(run, "ended").count(3) == 2, "the update of what hung")
    assert run.stop() == 0
    assert Counter(noted(run, "ended")) == dict.fromkeys((*range(6), *range(10, 20)), 1) | {3: 2}
    assert "Traceback" not in run.log
