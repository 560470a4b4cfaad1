"""Which positions of the past a store keeps: many recent ones, few old ones, those before seeks."""

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Self, TypeVar

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
    """What decides about a position. ``observed``: by handler, the last generation whose position
    it had taken; that of the handlers that are not named is that of the name ""."""

    id: Id
    saved_at: datetime
    observed: Mapping[str, int]

    @classmethod
    def of(cls, id: Id, record: Mapping[str, Any]) -> Self:
        """That of a stored record, of which only what decides is read. Raises ``ValueError``,
        ``TypeError`` or ``AttributeError`` if that is damaged."""
        together = int(record.get("observed_generation", 0))
        observed = dict.fromkeys(record.get("handlers") or ("",), together)
        for name, each in (record.get("apart") or {}).items():
            observed[name] = int(each.get("observed_generation", 0))
        return cls(id, datetime.fromisoformat(record["saved_at"]), observed)

    def is_left_for(self, later: Self) -> bool:
        """Whether a seek of a handler was between them."""
        mine = self.observed
        return any(mine.get(name, mine.get("", n)) < n for name, n in later.observed.items())


def stored_positions(
    records: Iterable[tuple[Id, Mapping[str, Any]]],
) -> Sequence[FormerPosition[Id]]:
    """The positions of stored records, but damaged ones."""
    positions = list[FormerPosition[Id]]()
    for id, record in records:
        with suppress(TypeError, ValueError, LookupError, AttributeError):
            positions.append(FormerPosition.of(id, record))
    return positions


def superfluous(positions: Sequence[FormerPosition[Id]]) -> Sequence[Id]:
    """The ids of those to forget. ``positions`` are all of a scope, the latest first."""
    if len(positions) <= MOST_POSITIONS:
        return ()
    newest, last = positions[0].saved_at, positions[RECENT - 1].saved_at
    needed = {position.id for position in positions[:RECENT]}
    for position in positions[RECENT:]:
        apart = max((newest - last).total_seconds() / _SPARSENESS, 1.0)
        if (last - position.saved_at).total_seconds() >= apart:
            needed.add(position.id)
            last = position.saved_at
    # A seek raises the generation: the latest position with a smaller one is the one that it left.
    left = [old.id for new, old in itertools.pairwise(positions) if old.is_left_for(new)]
    needed.update(left[:SEEKS])
    return [position.id for position in positions if position.id not in needed]
