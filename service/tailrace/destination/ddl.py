"""DDL in a destination: what a rename means for its scope, and which DDL was applied already.

A destination stores the *mark* of the last event of this kind that it applied. Marks sort as the
events do, so that one that comes again after a crash is known.
"""

from dataclasses import dataclass

from tailrace.destination.batch import ScopeContext
from tailrace.envelope.identity import event_id
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.layout import INCREMENT, SECONDS
from tailrace.event.snapshot_events import is_row
from tailrace.model import Scope

TIME_DIGITS = 16
"""The first digits of a mark are its cluster time."""


def cluster_time_digits(event: ChangeEvent) -> str | None:
    """The cluster time as a text that sorts as it does."""
    parts = event.parts
    seconds = parts[SECONDS]
    return None if seconds is None else f"{seconds << 32 | parts[INCREMENT]:016x}"


def ddl_mark(event: ChangeEvent) -> str:
    """The mark of an event that is not about a document: resume tokens sort as the events do."""
    return f"{cluster_time_digits(event) or ''}{event_id(event)}"


def is_before(event: ChangeEvent, mark: str) -> bool:
    """Whether a change is before the event of a mark: a position was set back, so it comes again.

    Rows of a snapshot are not among changes.
    """
    time = None if is_row(event) else cluster_time_digits(event)
    return time is not None and time < mark[:TIME_DIGITS]


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename of a collection, and which of its names the scope follows.

    Each scope handles its own half: one that follows only the old name loses the collection, as
    after a drop; one that follows only the new name loses what it replaced, and never got what it
    holds now.
    """

    source: Namespace
    to: Namespace
    leaves: bool
    """Whether the scope follows the old name."""
    arrives: bool
    """Whether the scope follows the new name: what that held before is gone."""

    @classmethod
    def of(cls, event: ChangeEvent, scope: Scope) -> "Rename | None":
        """``None`` for another event, or one without its names."""
        source, to = event.ns, event.to
        if event.operation_type != "rename" or source is None or to is None:
            return None
        leaves, arrives = (scope.covers(name.db, name.coll) for name in (source, to))
        return cls(source, to, leaves, arrives)

    def warn(self, scope: ScopeContext) -> None:
        """Logs that documents are missing, if the scope never followed them."""
        if self.arrives and not self.leaves:
            scope.log.warning(
                "collection.renamed_in",
                collection=str(self.source),
                to=str(self.to),
                consequence="the documents that it has are not in the destination",
                help=f"tailrace snapshot start {scope.name} --collection {self.to.coll}",
            )
