"""What every destination has after kills in the middle of batches, and hand-overs."""

import os
import random
import signal
from collections.abc import Callable
from functools import partial

import pytest

from tests.daemon import until
from tests.destinations import kills
from tests.destinations.copying import Copying, assert_untroubled
from tests.destinations.destination import Make
from tests.orders import Orders

ROUNDS = int(os.environ.get("ROUNDS", "2"))


def handed_over(logged: Copying, *, crashes: bool) -> None:
    one, two = logged.replica("one").start(), logged.replica("two")
    delivered = partial(two.metric, "tailrace_events_handled_total", handler="it", outcome="ok")
    until(lambda: one.status().get("state") == "caught_up", "its stream")
    with logged.load() as load:
        load.more(100)
        two.start(ready=False).until_answers()
        until(lambda: two.status().get("state") == "standby", "the other")
        one.signal(signal.SIGKILL if crashes else signal.SIGSTOP)
        until(lambda: two.metric("tailrace_lease_held") == 1, "the next owner")
        load.more(100)
        if not crashes:
            until(lambda: (delivered() or 0) > 20, "what the next owner delivers")
            one.signal(signal.SIGCONT)
            load.more(100)
    logged.until_equal()
    logged.assert_in_order()
    for run in (two,) if crashes else (one, two):
        assert_untroubled(run)


def test_a_hand_over_in_mid_batch_loses_nothing(logged: Copying) -> None:
    """The owner is paused until the next one has delivered changes, and wakes up in mid batch."""
    handed_over(logged, crashes=False)


# One that stores its position, and one that does not. Kills of all kinds: see below.
@pytest.mark.parametrize("kind", ["postgresql", "redis"], scope="session")
def test_a_hand_over_after_a_crash_in_mid_batch_loses_nothing(logged: Copying) -> None:
    handed_over(logged, crashes=True)


def test_kills_of_daemon_and_server_lose_nothing_and_repeat_nothing_where_promised(
    kind: str, served: Callable[[str], Make], orders: Orders
) -> None:
    """``python -m tests.destinations.kills --to KIND`` does it more often (``ROUNDS`` here)."""
    account = kills.run(orders, served(kind), ROUNDS, seed=random.randrange(10**6))
    assert not account.problems
