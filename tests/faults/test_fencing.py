"""Two processes on one scope and one store: one continues, the other halts and says why."""

from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders


class Sharing:
    """Daemons that share a store."""

    def __init__(self, orders: Orders, store: dict[str, Any]) -> None:
        self.orders = orders
        self._store = store

    def daemon(self, directory: str) -> Daemon:
        save = {"interval_seconds": 0.05}
        return self.orders.daemon(directory, store=self._store, checkpoint=save)


@pytest.fixture
def sharing(orders: Orders) -> Sharing:
    return Sharing(orders, {"type": "mongodb", "database": orders.database})


def assert_fenced(run: Daemon) -> None:
    assert "another process follows th" in run.halts()


def assert_followed(runs: list[Daemon], first: int, written: int) -> None:
    """Together they received every change, each process in order."""
    for run in runs:
        assert run.ids() == sorted(set(run.ids()))
    assert {number for run in runs for number in run.ids()} >= set(range(first, written))


def test_the_later_of_two_processes_continues_alone(sharing: Sharing) -> None:
    with sharing.orders.load() as load:
        old = sharing.daemon("old").start()
        load.more()
        until(lambda: (old.status().get("checkpoint") or {}).get("sequence", 0) > 2, "checkpoints")
        new = sharing.daemon("new").start()
        assert_fenced(old)
        load.more()
        until(lambda: new.status()["checkpoint"]["sequence"] > 2, "checkpoints of the second")
        assert new.status()["checkpoint"]["epoch"] == 2
        assert new.status()["restarts"] == 0
        assert new.get("/readyz")[0] == 200
    until(lambda: new.ids()[-1:] == [load.written - 1], "the last change")
    assert new.stop() == 0
    assert_followed([old, new], min(old.ids()), load.written)


def test_one_of_two_processes_that_start_together_follows(sharing: Sharing) -> None:
    """Also if a position is already stored and there are no changes meanwhile."""
    before = sharing.daemon("before").start()
    sharing.orders.insert(0)
    before.until_events(1)
    assert before.stop() == 0
    runs = [sharing.daemon(name) for name in ("one", "other")]
    for run in runs:
        run.start(ready=False)

    def halted() -> list[Daemon]:
        return [run for run in runs if run.logged("scope.halted")]

    until(halted, "the halt of one")
    (fenced,) = halted()
    (follows,) = (run for run in runs if run is not fenced)
    assert_fenced(fenced)
    assert fenced.ids() == []
    follows.until_ready()
    sharing.orders.insert(1)
    follows.until_events(1)
    assert follows.status()["restarts"] == 0
    assert follows.stop() == 0, follows.log
    assert follows.ids() == [1]
