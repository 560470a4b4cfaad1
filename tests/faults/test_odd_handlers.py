"""Handlers that misbehave, in the real service: each case has one defined outcome."""

from collections import Counter

import pytest

from tests.daemon import until
from tests.faults.odd import Odd
from tests.orders import Orders

AT_ONCE = {"attempts": 1000, "first_seconds": 0.01, "cap_seconds": 0.01}


def test_a_handler_that_blocks_the_event_loop_is_named(orders: Orders) -> None:
    odd = Odd(orders, "keeps_the_loop")
    odd.run.start()
    lags = odd.run.metric("tailrace_event_loop_lag_seconds_bucket", le="+Inf")
    assert lags is not None
    odd.insert(1)
    (blocked,) = until(lambda: odd.run.logged("event_loop.blocked"), "the warning")
    assert blocked["level"] == "warning"
    assert (blocked["scope"], blocked["handler"]) == ("orders", "keeps_the_loop")
    assert "odd_handlers.py:" in blocked["at"]
    assert blocked["at"].endswith(" keeps_the_loop")
    odd.open()
    until(lambda: odd.run.logged("event_loop.released"), "the end")
    until(lambda: odd.run.get("/livez")[0] == 200, "an answer again")

    def count(bound: str) -> float:
        return odd.run.metric("tailrace_event_loop_lag_seconds_bucket", le=bound) or 0

    until(lambda: count("+Inf") > count("1.0") >= 1, "the lag, beside many short ones")
    odd.until_noted("ended", 1)
    odd.ends_well()


@pytest.mark.parametrize("target", ["in_a_thread", "swallows"])
def test_a_handler_that_ignores_its_time_limit_keeps_its_lane(orders: Orders, target: str) -> None:
    """Until the first attempt has ended, neither the event nor its document gets another one."""
    odd = Odd(orders, target, handler={"timeout_seconds": 0.1, "retry": AT_ONCE})
    odd.run.start()
    odd.insert(1)
    (overdue,) = until(lambda: odd.run.logged("handler.overdue"), "the warning")
    with orders.server.client() as client:
        client[orders.database].orders.update_one({"_id": 1}, {"$set": {"state": "paid"}})
    odd.insert(2)
    odd.until_noted("begun", 2)
    assert overdue["level"] == "warning"
    assert (overdue["scope"], overdue["handler"]) == ("orders", target)
    assert overdue["timeout_seconds"] == 0.1
    until(lambda: odd.run.metric("tailrace_handler_overdue", handler=target) == 2, "the gauge")
    assert odd.run.status()["handlers"][target]["overdue"] == 2
    assert odd.noted("begun") == [1, 2]
    odd.open()
    until(lambda: odd.noted("ended").count(1) == 2, "both changes")
    odd.until_noted("ended", 2)
    until(lambda: odd.run.metric("tailrace_handler_overdue", handler=target) == 0, "the end")
    odd.ends_well()
    assert Counter(odd.noted("ended")) == {1: 2, 2: 1}


def test_a_handler_that_exits_is_retried(orders: Orders) -> None:
    odd = Odd(orders, "leaves", handler={"retry": AT_ONCE})
    odd.run.start()
    odd.insert(1)
    failed = until(lambda: odd.run.logged("handler.failed"), "the failure")
    assert failed[0]["error"] == "SystemExit: 0"
    odd.open()
    odd.until_noted("ended", 1)
    odd.ends_well()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("leaves_in_a_task", "SystemExit: 0"),
        ("interrupts_in_a_task", "KeyboardInterrupt"),
        ("cancels_everything", "CancelledError"),
    ],
)
def test_a_handler_that_ends_the_event_loop_is_not_a_clean_end(
    orders: Orders, target: str, said: str
) -> None:
    """``sys.exit(0)`` leaves the event loop, but the process does not exit with 0."""
    odd = Odd(orders, target)
    odd.run.start()
    odd.insert(1)
    assert odd.run.wait() == 1, odd.run.log
    assert f"tailrace: a handler has ended the process: {said}" in odd.run.log
    assert "No dead letters" in odd.run.command("dead-letters", "list")
    odd.open()
    odd.run.start()
    odd.until_noted("ended", 1)
    odd.ends_well()
