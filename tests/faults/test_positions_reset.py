"""An operator resets a position while the daemon runs, and the operator's order wins.

The daemon is fenced at its next save, halts the scope and says why. The next start, or a restart of
the scope, begins at its ``start_at``.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.orders import Orders

RESET = ("reset", "orders")
FENCED = "an operator has set or reset its position"


def following(orders: Orders, since: str, **store: Any) -> Daemon:
    """A daemon that has handled and saved three changes; a position before them repeats them."""
    run = orders.daemon(scope={"start_at": since}, **store).start()
    orders.insert(0, 1, 2)
    run.until_events(3)

    def saved() -> bool:
        status = run.status()
        return bool(status["checkpoint"]["token"] == status["position"]["token"])

    until(saved, "the checkpoint")
    return run


@pytest.mark.parametrize("store", ["sqlite", "mongodb"])
def test_a_reset_fences_the_daemon_and_its_next_run_begins_again(
    orders: Orders, store: str
) -> None:
    since = datetime.now(UTC).isoformat()
    place = {"type": store, "database": orders.database} if store == "mongodb" else {"type": store}
    run = following(orders, since, store=place)
    output = run.command("checkpoints", *RESET)
    assert "halts the scope at its next save" in output
    orders.insert(3)
    assert FENCED in run.halts()
    run.start()
    until(lambda: all(Counter(run.ids())[n] == 2 for n in (0, 1, 2)), "the first changes again")
    until(lambda: 3 in run.ids(), "the last change")
    assert run.stop() == 0, run.log


def test_a_stop_right_after_a_reset_does_not_undo_it(orders: Orders) -> None:
    run = following(orders, datetime.now(UTC).isoformat())
    run.stop()
    run.configuration["checkpoint"]["interval_seconds"] = 3600
    run.start()
    orders.insert(3)
    run.until_handled(file=1)
    run.command("checkpoints", *RESET)
    assert run.stop() == 3, run.log
    assert run.logged("service.not_saved")
    run.start()
    until(lambda: Counter(run.ids())[0] == 2, "the first change again")
    assert run.stop() == 0, run.log
