"""Names of tables: from a template, short enough for PostgreSQL, and one per collection."""

from collections.abc import Sequence
from hashlib import sha256
from itertools import combinations

from tailrace.config.name_template import Template
from tailrace.errors import ConfigurationError, Problem
from tailrace.event import Namespace
from tailrace.model import Scope

LONGEST = 63
"""The bytes of an identifier; PostgreSQL cuts longer ones without an error.

https://www.postgresql.org/docs/current/sql-syntax-lexical.html#SQL-SYNTAX-IDENTIFIERS
"""

_HASH = 9


def identifier(name: str) -> str:
    """The name itself; if it is too long, its beginning, ``_`` and eight digits of its hash."""
    raw = name.encode()
    if len(raw) <= LONGEST:
        return name
    digits = sha256(raw).hexdigest()[: _HASH - 1]
    return f"{raw[: LONGEST - _HASH].decode('utf-8', 'ignore')}_{digits}"


def quoted(*names: str) -> str:
    """The name, such as schema and table, as a text of SQL that is executed with parameters."""
    return ".".join('"' + name.replace('"', '""').replace("%", "%%") + '"' for name in names)


def table_name(template: Template, scope: str, namespace: Namespace) -> str:
    """The name of a collection's table."""
    return identifier(template.name(namespace.db, namespace.coll or "", scope=scope))


def collections(scopes: Sequence[Scope]) -> Sequence[tuple[Scope, Namespace]]:
    """The collections that scopes of one collection follow."""
    return [
        (scope, Namespace(scope.database, scope.collection))
        for scope in scopes
        if scope.database is not None and scope.collection is not None
    ]


def require_apart(handler: str, template: Template, scopes: Sequence[Scope]) -> None:
    """Raises :class:`ConfigurationError` if two scopes would write to one table."""
    for one, other in combinations(scopes, 2):
        for _, namespace in collections([one, other]):
            if all(each.covers(namespace.db, namespace.coll) for each in (one, other)):
                raise _collision(
                    handler,
                    f"scopes {one.name!r} and {other.name!r} both follow {namespace}: "
                    "give each a handler with tables of its own",
                )
    names: dict[str, Namespace] = {}
    for scope, namespace in collections(scopes):
        name = table_name(template, scope.name, namespace)
        former = names.setdefault(name, namespace)
        if former != namespace:
            raise _collision(
                handler,
                f"{former} and {namespace} would share the table {name!r}: "
                f"use {{database}} and {{collection}} in it",
            )


def _collision(handler: str, told: str) -> ConfigurationError:
    return ConfigurationError(Problem(f"handlers.{handler}.table", told))
