"""Connections to a real server that are lost, or hang, while changes are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.conftest import QUICK
from tests.faults.load import assert_whole, real_load, until_noticed, until_resumed
from tests.faults.proxy import Proxy
from tests.mongod import ReplicaSet
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]


def behind(proxy: Proxy) -> str:
    """The URI of a set whose one member is known, and reached, by the proxy's address."""
    return f"mongodb://{proxy.address}/?replicaSet=rs0{QUICK}"


def scope(database: str) -> list[dict[str, Any]]:
    shown = {"name": "orders", "database": database, "collection": "orders"}
    return [{**shown, "max_await_time_ms": 200}]


@pytest.fixture
def proxy(mongod: ReplicaSet) -> Proxy:
    return Proxy(mongod.ports[0], poses=True)


def test_connections_cut_on_their_way(
    mongod: ReplicaSet, database: str, proxy: Proxy, daemon: Make
) -> None:
    with proxy:
        run = daemon(behind(proxy), scopes=scope(database)).start()
        with real_load(mongod, database) as load:
            for number in range(1, 4):
                load.more()
                proxy.delay(0.02 * number)
                load.more()
                until_noticed(proxy.cut, lambda: run.status()["resumes"])
            load.more()
        assert run.status()["restarts"] == 0
        assert run.metric("tailrace_stream_resumes_total", reason="network") is not None
        assert_whole(run, load.written)


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_half_open_network_is_noticed_and_healed(
    mongod: ReplicaSet, database: str, proxy: Proxy, daemon: Make, driver: str
) -> None:
    """The monitor's heartbeat times out, and with it the driver ends the read that hangs."""
    with proxy:
        uri = behind(proxy)
        run = daemon(uri, mongodb={"uri": uri, "driver": driver}, scopes=scope(database)).start()
        with real_load(mongod, database, 0.1) as load:
            load.more()
            proxy.hold()
            until(lambda: run.status()["state"] == "starting", "the end of the read", 5)
            assert run.get("/readyz")[0] == 503
            assert run.status()["reason"].startswith("resumes after: ")
            assert run.status()["last_error"]
            load.more()
            proxy.heal()
            until_resumed(run, 1)
        assert run.status()["restarts"] == 0
        assert_whole(run, load.written)


def test_connections_that_a_firewall_forgot(
    mongod: ReplicaSet, database: str, proxy: Proxy, daemon: Make
) -> None:
    """Those that are open go dead, new ones are served at once."""
    with proxy:
        run = daemon(behind(proxy), scopes=scope(database)).start()
        with real_load(mongod, database, 0.1) as load:
            load.more()
            proxy.hold("present")
            until_resumed(run, 1)
            load.more()
        assert_whole(run, load.written)


def test_a_read_that_hangs_ends_once_the_monitors_know_that_its_server_is_gone(
    mongod: ReplicaSet, database: str, proxy: Proxy, daemon: Make
) -> None:
    """The monitor is refused, so no heartbeat times out; the read's connection looks open."""
    with proxy:
        run = daemon(behind(proxy), scopes=scope(database)).start()
        with real_load(mongod, database, 0.1) as load:
            load.more()
            proxy.hold("reads")
            proxy.refuse()
            until(lambda: run.status()["state"] == "starting", "the end of the read", 12)
            assert "is gone" in run.status()["last_error"]
            proxy.heal()
            until_resumed(run, 1)
        assert run.status()["restarts"] == 0
        assert_whole(run, load.written)


@pytest.mark.parametrize("driver", ["motor", "pymongo"])
def test_a_read_that_never_ends_does_not_hold_up_a_stop(
    scripted: ScriptedSet, daemon: Make, driver: str
) -> None:
    """Nothing else is wrong with the server; the reply, if one came, would be thrown away."""
    run = daemon(scripted.uri, mongodb={"uri": scripted.uri, "driver": driver}).start()
    scripted.insert("shop.orders", {"_id": 0})
    run.until_events(1)
    silent = scripted.fail("getMore", silent=True, times=None)
    until(lambda: silent.hits, "the read that never ends")
    scripted.insert("shop.orders", {"_id": 1})
    run.signal()
    assert run.wait(6) == 0
    assert run.logged("stream.abandoned")
    assert run.ids() == [0]
    assert "Traceback" not in run.log
