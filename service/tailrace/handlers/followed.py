"""The collections that a handler follows, and that each is written to a place of its own."""

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import TypeVar

from tailrace.errors import ConfigurationError, Problem
from tailrace.event import Namespace
from tailrace.model import Scope

P = TypeVar("P", bound=Hashable)


def collections(scopes: Sequence[Scope]) -> Sequence[tuple[Scope, Namespace]]:
    """The collections that scopes of one collection follow."""
    return [
        (scope, Namespace(scope.database, scope.collection))
        for scope in scopes
        if scope.database is not None and scope.collection is not None
    ]


def require_apart(
    path: str,
    scopes: Sequence[Scope],
    place: Callable[[str, Namespace], P],
    shared: Callable[[P, Namespace, Namespace], str],
) -> None:
    """Raises :class:`ConfigurationError` if two scopes, or two collections, would share a place.

    ``place``: where the handler writes a collection of the named scope. ``shared``: what to say of
    a place and its two collections. What is known only from events is not checked.
    """
    for one, other in combinations(scopes, 2):
        for _, source in collections([one, other]):
            if all(each.covers(source.db, source.coll) for each in (one, other)):
                message = f"scopes {one.name!r} and {other.name!r} both follow {source}"
                raise ConfigurationError(
                    Problem(path, f"{message}: give each a handler of its own")
                )
    sources: dict[P, Namespace] = {}
    for scope, source in collections(scopes):
        found = place(scope.name, source)
        former = sources.setdefault(found, source)
        if former != source:
            raise ConfigurationError(Problem(path, shared(found, former, source)))
