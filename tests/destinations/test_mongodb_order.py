"""The order of the stream within a batch of ``mongodb``: values of a unique index."""

import pytest

from tailrace import Refused
from tailrace.testing import Changes
from tests.destinations.calling import opened
from tests.destinations.mongodb import Target
from tests.handlers import begin, deliver

MOVES = {
    "between an exchange": ((("C", 4), ("A", 9), ("B", 1), ("A", 2)), 0),
    "before a later change of the other": ((("A", 7), ("B", 7), ("A", 7)), 1),
    "after a later change of the other": ((("A", 7), ("B", 8), ("A", 8)), 2),
}


@pytest.mark.parametrize(("moves", "fault"), MOVES.values(), ids=MOVES)
async def test_only_the_event_at_fault_is_named_where_a_unique_value_changes_hands(
    target: Target, changes: Changes, moves: tuple[tuple[str, int], ...], fault: int
) -> None:
    with target.client() as client:
        client[target.database].orders.create_index("seat", unique=True)
    async with opened(target.handler) as handler:
        await begin(handler)
        documents = [{"_id": id, "seat": seat} for seat, id in enumerate("ABCD", 1)]
        await deliver(handler, *[changes.insert(document) for document in documents])
        events = [changes.update(id, {"seat": seat}) for id, seat in moves]
        with pytest.raises(Refused) as refused:
            await deliver(handler, *events)
        assert list(refused.value.reasons) == [fault]
        await begin(handler)
        await deliver(handler, *[event for at, event in enumerate(events) if at != fault])
    with target.client() as client:
        found = {each["_id"]: each["seat"] for each in client[target.database].orders.find()}
    expected = {"A": 1, "B": 2, "C": 3, "D": 4}
    expected.update(move for at, move in enumerate(moves) if at != fault)
    assert found == expected
