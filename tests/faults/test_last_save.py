"""SIGTERM while the last position cannot be saved: the store is tried for seconds. If it takes
nothing, the exit code is 3, and the last log line says so."""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.daemon import Daemon, until
from tests.orders import Orders

NOT_PRIMARY = 10107
"""The code of NotWritablePrimary (src/mongo/base/error_codes.yml)."""


def handled_unsaved(orders: Orders, **sections: Any) -> Daemon:
    """A daemon that has handled three events since its last save."""
    run = orders.daemon(**{"checkpoint": {"interval_seconds": 3600}, **sections}).start()
    orders.insert(0, 1, 2)
    run.until_handled(file=3)
    return run


@contextmanager
def refused_updates(orders: Orders) -> Iterator[None]:
    """Makes saves fail in a store in this database."""
    namespace = f"{orders.database}.checkpoints"
    orders.server.fail("update", "alwaysOn", errorCode=8000, namespace=namespace)
    try:
        yield
    finally:
        orders.server.fail("update", "off")


def assert_not_saved(run: Daemon, reason: str) -> None:
    """The process ends by itself with exit code 3; its last line names the scope and the reason."""
    assert run.stop() == 3, run.log
    last = json.loads(run.log.splitlines()[-1])
    assert last["event"] == "service.not_saved"
    assert reason in last["scopes"]["orders"]
    assert "come again" in last["consequence"]
    assert not run.logged("service.stopped")


def assert_comes_again(run: Daemon, *numbers: int) -> None:
    """Each once more. An idle position may be the one that could not be saved: none before it."""
    before = Counter(run.ids())
    run.start()
    until(lambda: all(Counter(run.ids())[n] == before[n] + 1 for n in numbers), "the same events")
    assert run.stop() == 0, run.log
    assert run.logged("service.stopped")


def test_a_locked_store_file_ends_the_process_with_code_3(orders: Orders) -> None:
    run = handled_unsaved(orders)
    lock = sqlite3.connect(run.directory / "tailrace.db", isolation_level=None)
    try:
        lock.execute("BEGIN IMMEDIATE")
        assert_not_saved(run, "lock")
    finally:
        lock.close()
    assert_comes_again(run, 0, 1, 2)


def test_a_collection_that_takes_no_writes_ends_the_process_with_code_3(
    orders: Orders,
) -> None:
    """The signal comes while the running scope waits for its next attempt to save."""
    run = handled_unsaved(
        orders,
        store={"type": "mongodb", "database": orders.database},
        checkpoint={"interval_seconds": 0.1},
        supervisor={"first_seconds": 3600, "cap_seconds": 3600},
    )
    with refused_updates(orders):
        orders.insert(3)
        until(lambda: run.logged("checkpoint.save_failed"), "the failure")
        degraded = until(lambda: run.get("/readyz")[1].partition("degraded\n")[2], "the reason")
        assert degraded.startswith("scope orders: its position is not saved since ")
        assert_not_saved(run, "8000")
    assert_comes_again(run, 3)


def test_a_store_without_a_primary_for_a_moment_takes_the_last_position(orders: Orders) -> None:
    """As during an election: the stop is clean, and nothing comes again."""
    store = {"type": "mongodb", "database": orders.database}
    run = handled_unsaved(orders, store=store)
    namespace = f"{orders.database}.checkpoints"
    orders.server.fail("update", 2, errorCode=NOT_PRIMARY, namespace=namespace)
    assert run.stop() == 0, run.log
    assert run.logged("service.stopped")
    run.start()
    orders.insert(3)
    until(lambda: 3 in run.ids(), "the next change")
    assert run.stop() == 0, run.log
    assert run.ids() == [0, 1, 2, 3]
