"""SIGTERM while the last position cannot be saved: exit code 3, and the last log line says so."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet

LAST_SAVE_ONLY = {"interval_seconds": 3600}


def insert(mongod: ReplicaSet, database: str, *numbers: int) -> None:
    with mongod.client() as client:
        client[database].orders.insert_many([{"_id": number} for number in numbers])


def handled_unsaved(mongod: ReplicaSet, database: str, daemon: Make, **sections: Any) -> Daemon:
    """A daemon that has handled three events since its last save."""
    scope = {"name": "orders", "database": database, "collection": "orders"}
    run = daemon(mongod.uri, scopes=[scope], **{"checkpoint": LAST_SAVE_ONLY, **sections}).start()
    insert(mongod, database, 0, 1, 2)
    run.until_events(3)
    until(lambda: run.status()["in_flight"]["events"] == 0, "the end of their handling")
    return run


@contextmanager
def refused_updates(mongod: ReplicaSet, database: str) -> Iterator[None]:
    """No position can be saved in a collection of this database."""
    mongod.fail("update", "alwaysOn", errorCode=8000, namespace=f"{database}.checkpoints")
    try:
        yield
    finally:
        mongod.fail("update", "off")


def assert_not_saved(run: Daemon, reason: str) -> None:
    """It ends at once with exit code 3, and its last line names the scope and the reason."""
    assert run.stop() == 3, run.log
    last = json.loads(run.log.splitlines()[-1])
    assert last["event"] == "service.not_saved"
    assert reason in last["scopes"]["orders"]
    assert "come again" in last["consequence"]
    assert not run.logged("service.stopped")


def assert_comes_again(run: Daemon, *numbers: int) -> None:
    run.start()
    until(lambda: all(Counter(run.ids())[number] == 2 for number in numbers), "the same events")
    assert run.stop() == 0, run.log
    assert run.logged("service.stopped")


def test_a_locked_file(mongod: ReplicaSet, database: str, daemon: Make) -> None:
    run = handled_unsaved(mongod, database, daemon)
    lock = sqlite3.connect(run.directory / "tailrace.db", isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        assert_not_saved(run, "lock")
    finally:
        lock.close()
    assert_comes_again(run, 0, 1, 2)


def test_a_file_that_was_moved_away(mongod: ReplicaSet, database: str, daemon: Make) -> None:
    run = handled_unsaved(mongod, database, daemon)
    path = run.directory / "tailrace.db"
    aside = path.rename(path.with_suffix(".aside"))
    assert_not_saved(run, "moved, replaced or removed")
    aside.rename(path)
    assert_comes_again(run, 0, 1, 2)


def test_a_collection_that_takes_no_writes(mongod: ReplicaSet, database: str, daemon: Make) -> None:
    store = {"type": "mongodb", "database": database}
    run = handled_unsaved(mongod, database, daemon, store=store)
    with refused_updates(mongod, database):
        assert_not_saved(run, "8000")
    assert_comes_again(run, 0, 1, 2)


def test_a_failure_before_the_stop_that_no_later_save_made_good(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """The signal comes while the scope, which goes on, waits for its next attempt to save."""
    run = handled_unsaved(
        mongod,
        database,
        daemon,
        store={"type": "mongodb", "database": database},
        checkpoint={"interval_seconds": 0.1},
        supervisor={"first_seconds": 3600, "cap_seconds": 3600},
    )
    with refused_updates(mongod, database):
        insert(mongod, database, 3)
        until(lambda: run.logged("checkpoint.save_failed"), "the failure")
        assert_not_saved(run, "8000")
    assert_comes_again(run, 3)
