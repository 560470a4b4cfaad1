"""The source is restored from a backup: its data directory is copied, and put back later."""

import shutil
from collections.abc import Iterator

import pytest

from tests.daemon import Daemon, Make, until
from tests.mongod import ReplicaSet
from tests.orders import Orders


class Backup:
    """A copy of a member's data."""

    def __init__(self, server: ReplicaSet) -> None:
        self._server = server
        self._data = server.directory / "member0"
        self._copy = server.directory / "backup"
        server.stop()
        shutil.copytree(self._data, self._copy)
        server.start()

    def restore(self) -> None:
        self._server.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self._server.start()


@pytest.fixture
def orders(mortal: ReplicaSet, database: str, daemon: Make) -> Iterator[Orders]:
    yield Orders(mortal, database, daemon)
    shutil.rmtree(mortal.directory / "backup", ignore_errors=True)


def idle(run: Daemon) -> bool:
    """Whether the checkpoint's token is of an empty reply."""
    checkpoint = run.status()["checkpoint"]
    return bool(checkpoint) and checkpoint["kind"] == "idle"


def assert_halted(run: Daemon) -> None:
    (halted,) = until(lambda: run.logged("scope.halted"), "the halt")
    assert "restored from a backup" in halted["error"]
    assert "snapshot" in halted["error"]
    assert "--at" not in halted["error"]


@pytest.mark.parametrize(("driver", "kind"), [("motor", "idle"), ("pymongo", "event")])
def test_a_source_that_was_restored_while_nobody_followed_it_halts_the_scope(
    orders: Orders, driver: str, kind: str
) -> None:
    run = orders.daemon(driver=driver).start()
    orders.insert(1)
    run.until_events(1)
    backup = Backup(orders.server)
    orders.insert(2)
    run.until_events(2)
    until(lambda: kind == "event" or idle(run), "an idle position")
    assert run.stop() == 0
    backup.restore()
    orders.insert(3)
    run.start(ready=False)
    run.halts()
    assert_halted(run)
    assert run.ids() == [1, 2]


def test_a_source_that_is_restored_beneath_a_daemon_halts_the_scope(orders: Orders) -> None:
    run = orders.daemon().start()
    backup = Backup(orders.server)
    orders.insert(2)
    run.until_events(1)
    until(lambda: idle(run), "an idle position")
    backup.restore()
    orders.insert(3)
    run.halts()
    assert_halted(run)
    assert run.ids() == [2]


def test_a_restored_source_is_read_again_as_a_whole_if_configured(orders: Orders) -> None:
    run = orders.daemon(scope={"on_history_lost": "snapshot"}).start()
    orders.insert(1)
    backup = Backup(orders.server)
    orders.insert(2)
    run.until_events(2)
    assert run.stop() == 0
    backup.restore()
    orders.insert(3)
    run.start()
    until(lambda: run.events()[-1]["operationType"] == "snapshotEnd", "the snapshot")
    assert sorted(run.ids()[2:]) == [1, 3]


def test_a_source_that_was_restored_to_a_later_time_is_followed(orders: Orders) -> None:
    """Nothing that was read is missing."""
    run = orders.daemon().start()
    orders.insert(1)
    run.until_events(1)
    until(lambda: idle(run), "an idle position")
    assert run.stop() == 0
    backup = Backup(orders.server)
    backup.restore()
    orders.insert(2)
    run.start()
    run.until_events(2)
    assert run.stop() == 0
    assert run.ids() == [1, 2]
