"""Processes share the scopes of one store: if one ends, hangs or is paused, another continues."""

import signal

import pytest

from tailrace.observe.health_check import request
from tests.daemon import Daemon, until
from tests.local_clock import wrong_by
from tests.machine import free_port
from tests.replicas import LEASE_SECONDS, STEADY_SECONDS, Replicas


@pytest.mark.parametrize("replicas", ["mongodb"], indirect=True)
def test_a_standby_is_ready_and_names_the_owner_until_it_takes_over(replicas: Replicas) -> None:
    """In its status, in the list of scopes, and to who orders something there."""
    replicas.lease = STEADY_SECONDS
    names = ("one", "two")
    one, two = (replicas.daemon(name, http={"port": free_port()}).start() for name in names)
    replicas.until_owner(one)
    replicas.orders.insert(0)
    until(lambda: one.status()["checkpoint"]["sequence"] > 0, "a save")
    until(lambda: two.status()["state"] == "standby", "the other")
    assert two.status()["reason"] == "one follows it"
    assert two.get("/readyz") == (200, "ok\n")
    assert two.status()["lease"] == {"owner": "one", "epoch": 1, "held": False}
    until(lambda: two.metric("tailrace_lag_seconds", stage="committed") is not None, "its lag")
    assert '"name": "one"' in two.get("/status")[1]

    message = "is followed by one, and not by this process: ask there"
    for path in ("restart", "snapshot?action=start"):
        status, answer = request("127.0.0.1", two.port, f"/scopes/orders/{path}", method="POST")
        assert (status, message in answer) == (409, True), answer
    for verb in ("status", "start", "cancel"):
        code, answer = two.refused("snapshot", verb, "orders")
        assert (code, f"scope 'orders' {message}" in answer) == (1, True), answer
    tried = two.command("checkpoints", "reset", "orders", "--dry-run")
    assert "Scope 'orders' is followed by one (epoch 1)." in tried

    def listed() -> list[list[str]]:
        return [line.split() for line in two.command("scopes").splitlines()]

    lines = listed()
    assert lines[1][:3] == ["orders", "one", "1"]
    assert all(cell[:4].isdigit() and cell.endswith("Z") for cell in lines[1][3:5]), lines[1]
    assert [line[:2] for line in lines[4:]] == [["one", "1"], ["two", "0"]]
    assert one.stop() == 0
    replicas.until_owner(two)
    assert listed()[1][:3] == ["orders", "two", "2"]
    assert two.stop() == 0
    assert listed()[1][:4] == ["orders", "nobody", "2", "-"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_another_takes_over(replicas: Replicas, how: signal.Signals) -> None:
    if how is signal.SIGTERM:
        replicas.lease = STEADY_SECONDS
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
            replicas.pause(owner)
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
    until(lambda: owner.get("/readyz")[0] == 200, "that the standby is ready")
    replicas.stop()


@pytest.mark.parametrize(
    ("replicas", "offset"),
    [("sqlite", "-5h"), ("mongodb", "+5h")],
    indirect=["replicas"],
)
def test_local_clocks_do_not_matter(replicas: Replicas, offset: str) -> None:
    wrong = replicas.daemon("wrong", driver="pymongo")
    wrong.environ |= wrong_by(offset)
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
