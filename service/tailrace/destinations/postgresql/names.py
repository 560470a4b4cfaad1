"""Names of tables: from a template, short enough for PostgreSQL, and one per collection."""

from hashlib import sha256

from tailrace.destination import Template
from tailrace.event import Namespace

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


def shared(table: str, former: Namespace, namespace: Namespace) -> str:
    """That two collections would have one table, and what to do."""
    return (
        f"{former} and {namespace} would share the table {table!r}: "
        "use {database} and {collection} in it"
    )
