"""What the model of the promises allows, and what it does not."""

import pytest

from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.model.replay import Replay, ReplayRequest, ReplayState
from tailrace.testing import Changes
from tests.simulation.expected import Expected, Violation
from tests.simulation.ledger import Ledger, Reasons


def ledger_of(changes: Changes, reasons: Reasons) -> Ledger:
    expected = Expected(changes.oplog, Scope("orders", "shop", None))
    return Ledger("shelf", expected, reasons, once=False)


@pytest.mark.parametrize("refused", [True, False])
def test_ddl_waits_for_a_key_unless_the_key_has_a_dead_letter(refused: bool) -> None:
    """Also if the letter is of a dropped collection with that name: the keys are the same."""
    orders = Changes()
    users = orders.elsewhere("users")
    letter, drop, user = orders.insert({"_id": 1}), orders.drop(), users.insert({"_id": 2})
    orders.insert({"_id": 1})
    others = [user, users.drop()]
    ledger = ledger_of(orders, Reasons())
    if refused:
        ledger.refuse(letter)
        ledger.apply([drop, *others])
    else:
        ledger.apply([letter, drop])
        with pytest.raises(Violation, match="before 6"):
            ledger.apply(others)


@pytest.mark.parametrize("until", [None, 0, 1])
def test_a_gap_cuts_a_repetition_off_where_it_is(until: int | None) -> None:
    orders, reasons = Changes(), Reasons()
    changes = [orders.insert({"_id": 1}), *(orders.update(1, {"n": n}) for n in (1, 2))]
    ledger = ledger_of(orders, reasons)
    ledger.apply(changes[:2])
    ledger.answered(changes[:2])
    reasons.note("a kill")
    ledger.apply(changes[:1])
    if until is not None:
        time = changes[until].cluster_time
        assert time is not None
        ledger.skip(None, time)
    if until == 1:
        ledger.apply(changes[2:])
    else:
        with pytest.raises(Violation, match="without 2"):
            ledger.apply(changes[2:])


def replayed(reasons: Reasons) -> tuple[Ledger, list[ChangeEvent]]:
    """Two changes that have an answer, and a replay of them of which nothing has come."""
    orders = Changes()
    changes = [orders.insert({"_id": n}) for n in (1, 2)]
    ledger = ledger_of(orders, reasons)
    ledger.apply(changes)
    ledger.answered(changes)
    first, last = changes[0].cluster_time, changes[1].cluster_time
    assert first is not None
    assert last is not None
    ledger.replays.order(1, ReplayRequest(first, last))
    return ledger, changes


def test_a_call_of_a_replay_comes_again_until_it_has_an_answer() -> None:
    ledger, changes = replayed(Reasons())
    for _ in range(3):  # it does not reach the process
        ledger.apply(changes[:1])
    ledger.answered(changes[:1])
    with pytest.raises(Violation, match="again, which it had answered"):
        ledger.apply(changes[:1])


def test_after_a_kill_a_call_of_a_replay_and_one_of_the_handler_bring_a_change() -> None:
    reasons = Reasons()
    ledger, changes = replayed(reasons)
    ledger.apply(changes[:1])
    reasons.note("a kill")
    for _ in range(2):
        ledger.apply(changes[:1])
        ledger.answered(changes[:1])
    with pytest.raises(Violation, match="again, which it had answered"):
        ledger.apply(changes[:1])


def test_what_a_replay_brought_before_its_turn_comes_again_until_it_has_an_answer() -> None:
    """The handler has not come so far: the answer to the replay's call is not its own."""
    orders = Changes()
    first, second = orders.insert({"_id": 1}), orders.update(1, {"n": 1})
    ledger, time = ledger_of(orders, Reasons()), second.cluster_time
    assert time is not None
    ledger.replays.order(1, ReplayRequest(time, time))
    ledger.apply([second])
    ledger.answered([second])
    ledger.replayed(Replay(ReplayRequest(time, time), 1, "ann", ReplayState.DONE), failed=False)
    ledger.apply([first])
    for _ in range(2):
        ledger.apply([second])
    ledger.answered([second])
    with pytest.raises(Violation, match="again, which it had answered"):
        ledger.apply([second])


@pytest.mark.parametrize("first", [True, False])
def test_a_replay_is_not_asked_for_the_order_of_what_the_handler_brings(first: bool) -> None:
    """A former replay brought it when it was its turn; the handler has yet to come there."""
    orders = Changes()
    before, change = orders.insert({"_id": 1}), orders.update(1, {"n": 1})
    ledger, since, until = ledger_of(orders, Reasons()), before.cluster_time, change.cluster_time
    assert since is not None
    assert until is not None
    ledger.apply([before])
    ledger.answered([before])
    if first:
        ledger.replays.order(1, ReplayRequest(until, until))
    ledger.apply([change])
    ledger.answered([change])
    if first:
        done = Replay(ReplayRequest(until, until), 1, "ann", ReplayState.DONE)
        ledger.replayed(done, failed=False)
    ledger.replays.order(2, ReplayRequest(since, until))
    if first:
        ledger.apply([change])
    else:
        with pytest.raises(Violation, match="again before"):
            ledger.apply([change])
