"""Names of topics, tables, … that are made of an event's namespace: ``{database}.{collection}``."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import Formatter
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from tailrace.config.interpolation import Unresolved
from tailrace.errors import ConfigurationError, Problem
from tailrace.event import ChangeEvent, Namespace
from tailrace.model import Scope

_FIELDS = ("database", "collection", "scope", "prefix")

NONE = "_"
"""Stands for the database or the collection of a message that is about none: an ``invalidate`` or
the barrier of a snapshot in a scope that follows several."""

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with the placeholders ``{database}``, ``{collection}``, ``{scope}``, ``{prefix}``."""

    text: str

    def name(self, database: str, collection: str, *, scope: str = "", prefix: str = "") -> str:
        """The text with its placeholders replaced."""
        return self.text.format(
            database=database, collection=collection, scope=scope, prefix=prefix
        )


def _template(value: Any) -> Template:
    if isinstance(value, Template):
        return value
    if isinstance(value, Unresolved) or not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    message = f"may hold {', '.join(f'{{{name}}}' for name in _FIELDS)}, and no other brace"
    try:
        parts = list(Formatter().parse(str(value)))
    except ValueError:
        raise ValueError(message) from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in _FIELDS or form or conversion):
            raise ValueError(message)
    return Template(str(value))


NameTemplate = Annotated[
    Template,
    PlainValidator(_template),
    PlainSerializer(lambda given: given.text),
    WithJsonSchema({"type": "string"}),
]


def namespace_of(event: ChangeEvent, scope: Scope) -> tuple[str, str]:
    """Database and collection; :data:`NONE` for one that neither event nor scope has."""
    if (found := event.ns) is not None:
        return found.db or NONE, found.coll or NONE
    return scope.database or NONE, scope.collection or NONE


def followed_collections(scopes: Sequence[Scope]) -> Sequence[tuple[Scope, Namespace]]:
    """The collections that scopes of one collection follow."""
    return [
        (scope, Namespace(scope.database, scope.collection))
        for scope in scopes
        if scope.database is not None and scope.collection is not None
    ]


def require_apart(
    path: str,
    scopes: Sequence[Scope],
    target_of: Callable[[str, Namespace], P],
    shared: Callable[[P, Namespace, Namespace], str],
) -> None:
    """Raises :class:`ConfigurationError` if two scopes, or two collections, would share a target.

    ``target_of``: where the handler writes a collection of the named scope. ``shared``: what to
    say of a target and its two collections. What is known only from events is not checked.
    """
    for one, other in combinations(scopes, 2):
        for _, source in followed_collections([one, other]):
            if all(scope.covers(source.db, source.coll) for scope in (one, other)):
                message = f"scopes {one.name!r} and {other.name!r} both follow {source}"
                raise ConfigurationError(
                    Problem(path, f"{message}: give each a handler of its own")
                )
    require_targets_apart(path, scopes, target_of, shared)


def require_targets_apart(
    path: str,
    scopes: Sequence[Scope],
    target_of: Callable[[str, Namespace], P],
    shared: Callable[[P, Namespace, Namespace], str],
) -> None:
    """The same for scopes that may follow the same collection."""
    sources: dict[P, Namespace] = {}
    for scope, source in followed_collections(scopes):
        at = target_of(scope.name, source)
        former = sources.setdefault(at, source)
        if former != source:
            raise ConfigurationError(Problem(path, shared(at, former, source)))
