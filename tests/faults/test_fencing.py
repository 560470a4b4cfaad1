"""Two processes on one scope and one store: the later one goes on, the other halts as fenced."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon import Daemon, until
from tests.faults.load import scripted_load
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


def order(path: Path) -> tuple[int, int]:
    """Epoch and sequence of the stored position."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute("SELECT epoch, sequence FROM checkpoints").fetchall()
    finally:
        connection.close()
    return rows[0] if rows else (0, 0)


def test_the_later_process_goes_on_alone(
    scripted: ScriptedSet, daemon: Make, tmp_path: Path
) -> None:
    path = tmp_path / "shared.db"
    sections = {
        "checkpoint": {"path": str(path), "interval_seconds": 0.05},
    }
    orders: list[tuple[int, int]] = []

    def look(condition: Callable[[], bool]) -> bool:
        orders.append(order(path))
        return condition()

    with scripted_load(scripted) as load:
        old = daemon(scripted.uri, "old", **sections).start()
        load.more()
        until(lambda: look(lambda: order(path) > (1, 2)), "checkpoints of the first")
        new = daemon(scripted.uri, "new", **sections).start()
        assert old.process is not None
        until(lambda: look(lambda: bool(old.logged("scope.halted"))), "the fence")
        assert old.wait() == 1
        load.more()
        until(lambda: look(lambda: order(path) > (2, 3)), "checkpoints of the second")
        assert new.status()["restarts"] == 0
        assert new.get("/readyz")[0] == 200
    until(lambda: new.ids()[-1:] == [load.written - 1], "the last change")
    assert new.stop() == 0
    assert orders == sorted(orders), "a position went backwards"
    (halted,) = old.logged("scope.halted")
    assert "epoch" in halted["error"]
    # Together they saw every change since the first one began, each of them in order.
    for run in (old, new):
        assert run.ids() == sorted(set(run.ids()))
    seen = set(old.ids()) | set(new.ids())
    assert seen == set(range(min(seen), load.written))
