"""Which consecutive events are of one transaction."""

from collections.abc import Sequence
from itertools import pairwise

from tailrace.event import ChangeEvent
from tailrace.event.layout import transaction_at


def units(events: Sequence[ChangeEvent]) -> list[list[ChangeEvent]]:
    """The events, grouped by transaction."""
    together: list[list[ChangeEvent]] = []
    identities = [transaction_at(raw, 0, len(raw)) for raw in (event.raw for event in events)]
    for event, pair in zip(events, pairwise([None, *identities]), strict=True):
        if together and same_transaction(*pair):
            together[-1].append(event)
        else:
            together.append([event])
    return together


def same_transaction(one: tuple[bytes, bytes] | None, other: tuple[bytes, bytes] | None) -> bool:
    """Whether two events are of one transaction, by what ``transaction_at`` found of each."""
    if one is None or other is None:
        return False
    return one[0] == other[0] or b"" != one[1] == other[1]
