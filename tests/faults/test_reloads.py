"""Faults in a reload: it happened or it did not, and nothing is lost or handled twice."""

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.daemon import until
from tests.orders import Orders
from tests.reloads import Reloaded, post


@pytest.fixture
def reloaded(orders: Orders) -> Reloaded:
    return Reloaded(orders)


def test_changes_under_load_lose_and_repeat_nothing(reloaded: Reloaded) -> None:
    """Another type of handler, the scope removed, and added again with the first handler."""
    run, config = reloaded.run.start(), reloaded.config
    scopes, routes = config["scopes"], config["routes"]
    with reloaded.orders.load() as load:

        def reload(more: Callable[[], int]) -> None:
            before = more()
            status, done = reloaded.reload()
            assert (status, done["draining"]) == (202, [])
            if "orders" in [scope["name"] for scope in config["scopes"]]:
                until(lambda: more() > before + 20, "changes")

        reload(lambda: len(run.numbers("orders")))
        config["handlers"]["note"] = {"type": "jsonl", "path": "events.jsonl"}
        reload(lambda: len(run.ids()))
        config["scopes"], config["routes"] = scopes[1:], routes[1:]
        reload(lambda: 0)
        load.more()
        config["scopes"], config["routes"] = scopes, routes
        config["handlers"]["note"] = {"type": "python", "target": "mine:note"}
        reload(lambda: len(run.numbers("orders")))
    until(lambda: len(run.numbers("orders")) + len(run.ids()) >= load.written, "all changes")
    assert sorted([*run.numbers("orders"), *run.ids()]) == [*range(load.written)]
    assert run.stop() == 0, run.log
    assert "Traceback" not in run.log


def test_a_handler_that_ignores_its_cancellation_holds_up_only_its_scope(
    reloaded: Reloaded,
) -> None:
    """The scope is removed and added again meanwhile; it continues when the call ends."""
    run, config = reloaded.run.start(), reloaded.config
    stuck = run.directory / "users-stuck"
    stuck.touch()
    reloaded.insert(1, "users")
    until(lambda: run.numbers("users-begun"), "the call")
    scope, route = config["scopes"].pop(), config["routes"].pop()
    status, done = reloaded.reload()
    assert (status, done["draining"]) == (202, ["users"])
    assert "done when its handler calls have ended: users" in done["message"]
    reloaded.insert(1, "orders")
    reloaded.until("orders", 1)
    config["scopes"].append(scope)
    config["routes"].append(route)
    run.configured()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, run, {})
        reloaded.insert(2, "users")
        stuck.unlink()
        assert answer.result()[0] == 202
    until(lambda: 2 in run.numbers("users"), "the next change")
    assert set(run.numbers("users")) == {1, 2}
    assert reloaded.runs("orders") == 1
    assert run.stop() == 0, run.log


def test_an_object_that_hangs_while_it_is_opened_refuses_the_reload(reloaded: Reloaded) -> None:
    """The old one goes on, and so does a stop that comes meanwhile."""
    run, config = reloaded.run.start(), reloaded.config
    config["handlers"]["sink"] = reloaded.sink("hangs")
    run.configured()
    opening = run.directory / "opening"
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, run, {})
        until(opening.exists, "the opening")
        reloaded.insert(1, "users")
        reloaded.until("first", 1)
        status, message = answer.result()
        assert status == 503
        assert "could not be opened within 10 s: handlers.sink. Nothing was changed" in message
        opening.unlink()
        answer = pool.submit(post, run, {})
        until(opening.exists, "the opening")
        assert run.stop() == 0, run.log
        with suppress(OSError):
            assert answer.result()[0] in (409, 503)
    assert reloaded.life() == ["opened first", "closed first"]
    assert "Traceback" not in run.log


def test_a_store_that_fails_after_the_reload_began_is_waited_out(reloaded: Reloaded) -> None:
    """What could not be saved at the end of the drain comes again, and nothing else does."""
    run, config = reloaded.run.start(), reloaded.config
    closed = run.directory / "users-closed"
    reloaded.insert(1, "orders", "users")
    reloaded.until("users", 1)
    closed.touch()
    reloaded.insert(2, "users")
    until(lambda: run.numbers("users-begun") == [1, 2], "the call")
    config["scopes"][1]["batch_size"] = 7
    run.configured()
    store = run.directory / "tailrace.db"
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(post, run, {})
        until(lambda: run.status("users")["state"] == "draining", "the drain")
        away = store.rename(run.directory / "away")  # each statement fails until it is back
        closed.unlink()
        assert answer.result()[0] == 202
        until(lambda: run.status("users")["state"] == "backing_off", "the failure of the store")
        reloaded.insert(2, "orders")
        reloaded.until("orders", 1, 2)
        away.rename(store)
    run.until_ready()
    reloaded.insert(3, "users")
    until(lambda: 3 in run.numbers("users"), "the next change")
    assert run.numbers("users") in ([1, 2, 3], [1, 2, 2, 3])
    assert run.stop() == 0, run.log


@pytest.mark.parametrize("step", ["opening", "draining", "closing", "writing"])
def test_a_process_that_dies_at_a_step_starts_with_the_new_configuration(
    reloaded: Reloaded, step: str
) -> None:
    """From its checkpoints: what was not saved comes again."""
    run, config = reloaded.run.start(), reloaded.config
    reloaded.insert(1, "users")
    reloaded.until("first", 1)
    closed, die = run.directory / "users-closed", run.directory / f"die-{step}"
    die.touch()
    if step == "draining":
        closed.touch()
        reloaded.insert(2, "users")
        until(lambda: run.numbers("users-begun") == [1, 2], "the call")
    config["handlers"]["sink"] = reloaded.sink("second")
    with suppress(OSError):
        reloaded.reload()
    if step != "draining":
        reloaded.insert(2, "users")
    assert run.wait() == -signal.SIGKILL
    assert not die.exists()
    closed.unlink(missing_ok=True)
    run.start()
    reloaded.insert(3, "users")
    until(lambda: {3} <= {*run.numbers("users")} & {*run.numbers("second")}, "the next change")
    assert {*run.numbers("users")} == {*run.numbers("first"), *run.numbers("second")} == {1, 2, 3}
    assert run.stop() == 0, run.log
