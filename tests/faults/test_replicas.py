"""Processes that share the scopes of one store: one follows a scope, the others stand by."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders


class Replicas:
    """Daemons that share a store, with leases of a second."""

    def __init__(self, orders: Orders, store: dict[str, Any]) -> None:
        self.orders = orders
        self._store = store

    def daemon(self, name: str, **sections: Any) -> Daemon:
        replicas = {"lease_seconds": 1, "name": name}
        save = {"interval_seconds": 0.05}
        return self.orders.daemon(
            name, store=self._store, checkpoint=save, replicas=replicas, **sections
        )


@pytest.fixture(params=["sqlite", "mongodb"])
def sharing(orders: Orders, tmp_path: Path, request: pytest.FixtureRequest) -> Replicas:
    place = {"path": str(tmp_path / "shared.db")}
    if request.param == "mongodb":
        place = {"database": f"{orders.database}_store"}
    return Replicas(orders, {"type": request.param, **place})


def owner(runs: list[Daemon]) -> Daemon | None:
    """The one that follows the scope."""
    found = [run for run in runs if run.metric("tailrace_lease_held", scope="orders") == 1]
    return found[0] if len(found) == 1 else None


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_another_process_takes_over(sharing: Replicas, how: signal.Signals) -> None:
    one = sharing.daemon("one").start()
    until(lambda: one.status()["state"] in ("streaming", "caught_up"), "the first")
    other = sharing.daemon("other").start()
    assert other.status()["state"] == "standby"
    assert other.status()["reason"] == "one follows it"
    with sharing.orders.load() as load:
        load.more()
        one.signal(how)
        one.wait()
        until(lambda: owner([other]), "the second")
        load.more()
    until(lambda: other.ids()[-1:] == [load.written - 1], "the last change")
    assert other.status()["lease"]["epoch"] > 1
    assert {*one.ids(), *other.ids()} == set(range(min(one.ids()), load.written))
    if how is signal.SIGTERM:
        assert not set(one.ids()) & set(other.ids())
    assert other.stop() == 0
