"""When collections ended: a drop ends their documents, and a rename takes them along.

Changes from before may come again, as may the drop itself, after a position was set back.
"""

from dataclasses import dataclass, field

from tailrace.event.cluster_position import BEFORE_ALL
from tailrace.event.namespace import Namespace


@dataclass(slots=True)
class CollectionEnds:
    """The position of the last end of each collection and database in a log of changes."""

    _positions: dict[Namespace, int] = field(default_factory=dict)

    def add(self, of: Namespace, time: int) -> None:
        """Notes an end. One that comes again, after a later one, changes nothing."""
        self._positions[of] = max(time, self.last(of))

    def last(self, of: Namespace) -> int:
        """The last end of this collection, or of this database."""
        return self._positions.get(of, BEFORE_ALL)

    def follows(self, time: int, of: Namespace) -> bool:
        """Whether the collection, or its database, ended after a change of this time."""
        return time < max(self.last(of), self.last(Namespace(of.db)))
