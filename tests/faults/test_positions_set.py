"""An operator sets or resets a position while the daemon runs: what he wants is what happens.

The daemon is fenced at its next save, halts the scope and says why; the next start, or a restart of
the scope, begins where he wants it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.daemon import Make, until
from tests.mongod import ReplicaSet


class Following:
    """A daemon that has handled and saved three changes, which a position before them repeats."""

    def __init__(self, mongod: ReplicaSet, database: str, daemon: Make, store: str) -> None:
        self._mongod, self._database = mongod, database
        self.since = datetime.now(UTC).isoformat()
        where = {"database": database} if store == "mongodb" else {"path": "tailrace.db"}
        scope = {"name": "orders", "database": database, "collection": "orders"}
        self.run = daemon(
            mongod.uri, store={"type": store, **where}, scopes=[{**scope, "start_at": self.since}]
        ).start()
        self.insert(0, 1, 2)
        self.run.until_events(3)
        until(
            lambda: (
                (status := self.run.status())["checkpoint"]["token"] == status["position"]["token"]
            ),
            "the checkpoint",
        )

    def insert(self, *numbers: int) -> None:
        with self._mongod.client() as client:
            client[self._database].orders.insert_many([{"_id": number} for number in numbers])

    def forget(self) -> str:
        return self.run.command("checkpoints", "reset", "orders")

    def go_back(self) -> str:
        return self.run.command("checkpoints", "set", "orders", "--at", self.since)


@pytest.fixture(params=["sqlite", "mongodb"])
def following(
    mongod: ReplicaSet, database: str, daemon: Make, request: pytest.FixtureRequest
) -> Following:
    return Following(mongod, database, daemon, request.param)


@pytest.mark.parametrize("change", [Following.forget, Following.go_back])
def test_the_daemon_is_fenced_and_begins_there_at_its_next_start(
    following: Following, change: Callable[[Following], str]
) -> None:
    run = following.run
    told = change(following)
    assert "halts the scope at its next save" in told
    following.insert(3)
    assert run.wait() == 1, run.log
    (halted,) = run.logged("scope.halted")
    assert "an operator has set or reset its position" in halted["error"]
    (failed,) = run.logged("service.failed")
    assert failed["restart_helps"]
    run.start()
    until(lambda: all(Counter(run.ids())[n] == 2 for n in (0, 1, 2)), "the first changes again")
    until(lambda: 3 in run.ids(), "the last change")
    assert run.stop() == 0, run.log


def test_a_stop_right_after_a_reset_does_not_undo_it(following: Following) -> None:
    run = following.run
    run.stop()
    run.configuration["checkpoint"]["interval_seconds"] = 3600
    run.start()
    following.insert(3)
    run.until_events(4)
    until(lambda: run.status()["in_flight"]["events"] == 0, "the end of its handling")
    following.forget()
    assert run.stop() == 3, run.log
    assert run.logged("service.not_saved")
    run.start()
    until(lambda: Counter(run.ids())[0] == 2, "the first change again")
    assert run.stop() == 0, run.log


def test_a_daemon_that_has_saved_nothing_yet_is_fenced_as_well(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """What it takes for its epoch is not yet in the store."""
    following = Following(mongod, database, daemon, "sqlite")
    run = following.run
    with sqlite3.connect(run.directory / "tailrace.db") as connection:
        connection.execute("DELETE FROM checkpoints")
    following.go_back()
    following.insert(3)
    assert run.wait() == 1, run.log
    assert run.logged("scope.halted")
