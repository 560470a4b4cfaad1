"""Handlers that misbehave, in the real service: each case has one defined outcome."""

from collections import Counter

import pytest

from tests.daemon import until
from tests.faults.odd import Odd
from tests.orders import Orders

AT_ONCE = {"attempts": 1000, "first_seconds": 0.01, "cap_seconds": 0.01}


def test_a_handler_that_ignores_timeout_seconds_keeps_its_lane(orders: Orders) -> None:
    """Until the first attempt has ended, neither the event nor its document gets another one."""
    target = "in_a_thread"
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
