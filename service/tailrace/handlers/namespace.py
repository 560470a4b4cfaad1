"""Where a message belongs: database and collection of its event, or else of its scope."""

from tailrace.event import ChangeEvent
from tailrace.model import Scope

NONE = "_"
"""Stands for the database or the collection of a message that is about none: an ``invalidate`` or
the barrier of a snapshot in a scope that follows several."""


def place_of(event: ChangeEvent, scope: Scope) -> tuple[str, str]:
    """Database and collection; :data:`NONE` for one that neither event nor scope has."""
    if (found := event.ns) is not None:
        return found.db or NONE, found.coll or NONE
    return scope.database or NONE, scope.collection or NONE
