"""Processes share the scopes of one store: if one ends, hangs or is paused, another continues."""

import signal
import sqlite3
from contextlib import closing

import pytest

from tests.daemon import Daemon, until
from tests.packages import unpacked
from tests.replicas import LEASE_SECONDS, Replicas


def test_the_others_stand_by_and_are_ready(replicas: Replicas) -> None:
    one, other = replicas.start("one", "other")
    replicas.until_owner(one)
    until(lambda: other.status()["state"] == "standby", "the other")
    assert other.status()["reason"] == "one follows it"
    assert other.get("/readyz") == (200, "ok\n")
    assert other.status()["lease"] == {"owner": "one", "epoch": 1, "held": False}
    until(lambda: other.metric("tailrace_lag_seconds", stage="committed") is not None, "its lag")
    assert '"name": "one"' in other.get("/status")[1]
    replicas.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_another_takes_over(replicas: Replicas, how: signal.Signals) -> None:
    replicas.start("one", "two", "three")
    with replicas.orders.load() as load:
        for _ in range(2):
            owner = replicas.until_owner()
            load.more()
            replicas.until_noted(load.written)
            owner.signal(how)
            owner.wait()
            replicas.until_owner(*replicas.others(owner))
            owner.start()
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    if how is signal.SIGTERM:
        numbers = [each.number for each in replicas.noted]
        assert numbers == sorted(set(numbers)), "a clean stop repeats nothing"
    replicas.stop()


def paused(owner: Daemon, store: str) -> bool:
    """Sends SIGSTOP, unless the process writes to the store just then.

    The lock on SQLite's file, which it then has, would stop all others (docs/architecture.md).
    """
    owner.signal(signal.SIGSTOP)
    with closing(sqlite3.connect(store, timeout=0.5, isolation_level=None)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            owner.signal(signal.SIGCONT)
            return False
        return True


def taken_over(replicas: Replicas, pause: str) -> Daemon:
    """Pauses the owner for three leases under load. Returns the former owner, which stands by."""
    replicas.start("one", "two", "three")
    with replicas.orders.load() as load:
        owner = replicas.until_owner()
        load.more()
        replicas.until_noted(load.written)
        if pause == "block":
            (owner.directory / "block").write_text(str(3 * LEASE_SECONDS))
        else:
            until(lambda: paused(owner, replicas.store["path"]), "a pause outside a write")
        next_owner = replicas.until_owner(*replicas.others(owner)) if pause != "block" else None
        load.more()
        until(lambda: {each.process for each in replicas.noted} > {owner.directory.name}, "another")
        if next_owner is not None:
            owner.signal(signal.SIGCONT)
        until(lambda: owner.status().get("state") == "standby", "that it stands by")
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    return owner


@pytest.mark.parametrize(
    ("replicas", "pause"), [("sqlite", "stop"), ("mongodb", "block")], indirect=["replicas"]
)
def test_a_paused_owner_becomes_a_standby(replicas: Replicas, pause: str) -> None:
    """A pause, by SIGSTOP or by a handler that blocks the event loop, is not a failure."""
    owner = taken_over(replicas, pause)
    assert owner.logged("lease.lost") or owner.logged("scope.fenced")
    assert owner.status()["restarts"] == 0
    assert owner.get("/readyz")[0] == 200
    replicas.stop()


@pytest.mark.parametrize(
    ("replicas", "offset"),
    [("sqlite", "-5h"), ("mongodb", "+5h")],
    indirect=["replicas"],
)
def test_local_clocks_do_not_matter(replicas: Replicas, offset: str) -> None:
    (library,) = unpacked("libfaketime").rglob("libfaketimeMT.so.1")
    # libfaketime breaks the absolute sleeps of Motor's threads.
    wrong = replicas.daemon("wrong", driver="pymongo")
    wrong.environ |= {
        "LD_PRELOAD": str(library),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    wrong.start()
    replicas.start("right")
    with replicas.orders.load() as load:
        for _ in range(2):
            owner = replicas.until_owner()
            load.more()
            owner.kill()
            replicas.until_owner(*replicas.others(owner))
            owner.start()
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    replicas.stop()


def test_a_scope_whose_handler_does_not_drain_is_followed_again(replicas: Replicas) -> None:
    """SIGTERM, and a handler that ignores its cancellation: the process exits all the same."""
    (one,) = replicas.start("one", shutdown={"grace_seconds": 1})
    replicas.orders.insert(0)
    replicas.until_noted(0)
    (one.directory / "hang").touch()
    replicas.orders.insert(1)
    replicas.until_noted(1)
    (two,) = replicas.start("two")
    one.signal()
    replicas.until_owner(two)
    until(lambda: [each.number for each in replicas.noted].count(1) == 2, "the change again")
    assert one.wait() == 3, one.log
    replicas.orders.insert(2)
    replicas.until_noted(2)
    replicas.stop()
