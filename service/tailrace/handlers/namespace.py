"""Where a message belongs: database and collection of its event, or else of its scope."""

from collections.abc import Sequence

from tailrace.event import ChangeEvent
from tailrace.model import Scope

NONE = "_"
"""Stands for the database or the collection of a message that is about none: an ``invalidate`` or
the barrier of a snapshot in a scope that follows several."""


class Places:
    """Finds database and collection of each event for the scopes that a handler follows."""

    def __init__(self, follows: Sequence[Scope]) -> None:
        self._scopes = {scope.name: scope for scope in follows}

    def of(self, event: ChangeEvent, scope: str) -> tuple[str, str]:
        """Database and collection; :data:`NONE` for one that neither event nor scope has."""
        found, follows = event.ns, self._scopes.get(scope)
        database = found.db if found is not None else follows and follows.database
        collection = found.coll if found is not None else follows and follows.collection
        return database or NONE, collection or NONE
