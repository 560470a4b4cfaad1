"""What a rename of a collection means for a scope that follows the old name, the new one, or both.

Each scope handles its own half: one that follows only the old name loses the collection, as after a
drop; one that follows only the new name loses what it replaced, and never got what it holds now.
"""

from dataclasses import dataclass

from tailrace.engine.batch import ScopeContext
from tailrace.event import ChangeEvent, Namespace
from tailrace.model import Scope


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename, and which of its names the scope follows."""

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
