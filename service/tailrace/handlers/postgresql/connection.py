"""Connections to PostgreSQL, and what its errors mean."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace.config.secret import Secret
from tailrace.errors import Unavailable, describe

Connection = psycopg.AsyncConnection[tuple[object, ...]]

_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # ms
    "application_name": "tailrace",
}
"""What the connection string does not say: a peer that vanished is noticed within 30 s."""

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_OUTAGES = ("08", "28", "40", "53", "57", "58")
"""Classes of SQLSTATE: connections, authentication, serialization, resources, shutdown, disk."""
_SINGLE_OUTAGES = frozenset(
    {
        "25006",  # read_only_sql_transaction: a standby, or a primary that was demoted
        "25P03",  # idle_in_transaction_session_timeout
        "25P04",  # transaction_timeout
        "3D000",  # invalid_catalog_name: the database is not there
        "42501",  # insufficient_privilege: a right was revoked
        "55P03",  # lock_not_available
        "55006",  # object_in_use
        "55000",  # object_not_in_prerequisite_state, as while a server starts
    }
)
_DATA = ("22", "23", "44", "54", "P0")
"""Data, constraints, checks of views, limits of one value, and what a trigger raises."""

_BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A process that is paused in a transaction holds its row no longer than this."""


async def connected(dsn: Secret) -> Connection:
    """A connection without a transaction. Raises :class:`Unavailable`."""
    given = dsn.read()
    with outages():
        conninfo = make_conninfo(**{**_DEFAULTS, **conninfo_to_dict(given)})
        # No prepared statements: a pooler such as PgBouncer may give each transaction another
        # session.
        connection: Connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None
        )
    return connection


def is_outage(error: psycopg.Error) -> bool:
    """Whether the server is down or out of something, rather than the data or the SQL wrong."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state.startswith(_OUTAGES) or state in _SINGLE_OUTAGES


def is_of_data(error: psycopg.Error) -> bool:
    """Whether a row is refused, and others may not be."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return error.sqlstate.startswith(_DATA)


@contextmanager
def outages() -> Iterator[None]:
    """Raises :class:`Unavailable` for errors that say that the server is down."""
    try:
        yield
    except psycopg.Error as error:
        if is_outage(error):
            raise Unavailable(server_message(error)) from error
        raise


def server_message(error: psycopg.Error) -> str:
    """One line: what the server says, without the lines about its context."""
    if (message := error.diag.message_primary) is not None:
        return f"{message} (SQLSTATE {error.sqlstate})"
    return describe(error)


@asynccontextmanager
async def transaction(connection: Connection, *, commit: bool = True) -> AsyncIterator[None]:
    """Commits when the block ends, or rolls back without ``commit``.

    After an error the transaction stays open: close the connection, or roll back.
    """
    await connection.execute(_BEGIN)
    yield
    await connection.execute(b"COMMIT" if commit else b"ROLLBACK")
