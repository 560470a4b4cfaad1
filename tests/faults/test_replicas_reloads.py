"""Reloads of processes that share scopes: each for itself, also in the middle of a hand-over."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders
from tests.reloads import post
from tests.replicas import STEADY_SECONDS, Replicas

SCOPES = ("orders", "users")


@pytest.fixture
def replicas(orders: Orders) -> Replicas:
    return Replicas(orders, lease=STEADY_SECONDS)


def following(replicas: Replicas, name: str, *scopes: str, grace_seconds: float = 10) -> Daemon:
    """A daemon that follows these scopes, started."""
    run = replicas.daemon(name, shutdown={"grace_seconds": grace_seconds})
    run.configuration |= replicas.following(*scopes)
    return run.start(ready=False).until_answers()


def reload(run: Daemon, scope: str, size: int) -> None:
    """Changes the batch size of a scope."""
    scopes = run.configuration["scopes"]
    next(each for each in scopes if each["name"] == scope)["batch_size"] = size
    run.configured()
    status, done = post(run, {})
    assert (status, done["scopes"][scope]["effect"]) == (202, "restarted")


def test_the_owner_and_a_standby_reload_under_load(replicas: Replicas) -> None:
    """The standby's reload does not touch the owner; a scope that one process gives up moves."""
    one = following(replicas, "one", *SCOPES).until_ready()
    for scope in SCOPES:
        replicas.until_owner(one, scope=scope)
    two = following(replicas, "two", "orders").until_ready()
    with replicas.orders.load() as load:
        load.more()
        owner = replicas.until_owner()
        (standby,) = replicas.others(owner)
        epoch = owner.status()["lease"]["epoch"]
        reload(standby, "orders", 7)
        standby.until_ready()
        load.more()
        assert owner.status()["lease"]["epoch"] == epoch
        reload(owner, "orders", 8)
        load.more()
        replicas.until_noted(load.written - 1)
        one.configuration |= replicas.following("users")
        one.configured()
        assert post(one, {})[1]["scopes"]["orders"]["effect"] == "stopped"
        replicas.until_owner(two)
        load.more()
    replicas.until_noted(load.written - 1)
    replicas.assert_shared(load.written)
    numbers = [each.number for each in replicas.noted]
    assert numbers == sorted(set(numbers)), "a drain repeats nothing"
    replicas.stop()


def test_a_reload_in_the_middle_of_a_hand_over_loses_nothing(replicas: Replicas) -> None:
    """A call keeps the scope from being handed over while both processes reload."""
    one = following(replicas, "one", *SCOPES, grace_seconds=20).until_ready()
    for scope in SCOPES:
        until(lambda scope=scope: one.status(scope)["state"] == "caught_up", "the stream")  # type: ignore[misc]
        replicas.orders.insert(0, collection=scope)
        replicas.until_noted(0, scope)
    hang = one.directory / "hang"
    hang.touch()
    for scope in SCOPES:
        replicas.orders.insert(1, collection=scope)
        replicas.until_noted(1, scope)
    two, moved = following(replicas, "two", *SCOPES).until_ready(), SCOPES[0]
    replicas.request(moved, two)
    until(lambda: one.logged("lease.handed_over"), "the hand-over")
    with ThreadPoolExecutor() as pool:
        reloads = [pool.submit(reload, run, moved, 7) for run in (one, two)]
        until(lambda: one.status(moved)["state"] == "draining", "the drain")
        hang.unlink()
        for each in reloads:
            each.result()
    for scope in SCOPES:
        replicas.orders.insert(2, collection=scope)
        replicas.until_noted(2, scope)
        assert [each.number for each in replicas.noted if each.scope == scope] == [0, 1, 2]
        assert len(replicas.owners(scope)) == 1
    replicas.stop()
