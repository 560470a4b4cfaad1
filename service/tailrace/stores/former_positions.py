"""Which positions of the past a store keeps: many recent ones, few old ones, those before seeks."""

import itertools
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

Id = TypeVar("Id", bound=Hashable)

MOST_POSITIONS = 100
"""With more than so many positions of a scope, a store forgets those that are superfluous."""

RECENT = 20
"""So many of the newest are kept as they are."""

SEEKS = 50
"""The positions before so many of the newest seeks are kept."""

_SPARSENESS = 4
"""Older ones are a quarter of their age apart: about 10 an order of magnitude, so that days, the
time that an oplog goes back, take 40."""


@dataclass(frozen=True, slots=True)
class FormerPosition(Generic[Id]):
    """What decides about a position. ``obeyed``: as in :class:`tailrace.model.Checkpoint`."""

    id: Id
    saved_at: datetime
    obeyed: int


def stored_positions(records: Iterable[tuple[Id, Any, Any]]) -> Sequence[FormerPosition[Id]]:
    """The positions of stored records, each with its id, time and number, but damaged ones."""
    positions = list[FormerPosition[Id]]()
    for id, saved_at, obeyed in records:
        with suppress(TypeError, ValueError):
            positions.append(FormerPosition(id, datetime.fromisoformat(saved_at), int(obeyed)))
    return positions


def superfluous(positions: Sequence[FormerPosition[Id]]) -> Sequence[Id]:
    """The ids of those to forget. ``positions`` are all of a scope, the latest first."""
    if len(positions) <= MOST_POSITIONS:
        return ()
    newest, last = positions[0].saved_at, positions[RECENT - 1].saved_at
    kept = {position.id for position in positions[:RECENT]}
    for position in positions[RECENT:]:
        apart = max((newest - last).total_seconds() / _SPARSENESS, 1.0)
        if (last - position.saved_at).total_seconds() >= apart:
            kept.add(position.id)
            last = position.saved_at
    # A seek raises ``obeyed``: the latest position with a smaller number is the one that it left.
    left = [old.id for new, old in itertools.pairwise(positions) if old.obeyed < new.obeyed]
    kept.update(left[:SEEKS])
    return [position.id for position in positions if position.id not in kept]
