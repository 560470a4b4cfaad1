"""What the model of the promises allows, and what it does not."""

import pytest

from tailrace.model import Scope
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
