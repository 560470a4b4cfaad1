"""Connections to PostgreSQL, and what its errors mean."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tailrace.destination import Secret
from tailrace.errors import BatchTooLarge, Unavailable, describe

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

Meaning = Literal["destination", "limit", "event"]
"""What an error is about: the server, which is waited for; a limit that fewer events may not meet;
or a row, which is refused."""

# https://www.postgresql.org/docs/current/errcodes-appendix.html
MEANINGS: Mapping[str, Meaning] = {
    "08": "destination",  # connection_exception
    "22": "event",  # data_exception
    "23": "event",  # integrity_constraint_violation
    "25006": "destination",  # read_only_sql_transaction: a standby, or a primary that was demoted
    "25P03": "destination",  # idle_in_transaction_session_timeout
    "25P04": "limit",  # transaction_timeout
    "27": "event",  # triggered_data_change_violation
    "28": "destination",  # invalid_authorization_specification
    "38": "event",  # external_routine_exception: of a trigger, like class 39
    "39": "event",  # external_routine_invocation_exception
    "3D000": "destination",  # invalid_catalog_name: the database is not there
    "40": "destination",  # transaction_rollback: serialization, deadlock
    "42501": "destination",  # insufficient_privilege: a right was revoked
    "44": "event",  # with_check_option_violation, also of row security
    "53": "destination",  # insufficient_resources: disk, connections
    "53200": "limit",  # out_of_memory
    "53400": "limit",  # configuration_limit_exceeded, such as temp_file_limit
    "54": "event",  # program_limit_exceeded: a row or a key is too large
    "55000": "destination",  # object_not_in_prerequisite_state, as while a server starts
    "55006": "destination",  # object_in_use
    "55P03": "limit",  # lock_not_available: lock_timeout, of all rows together
    "57": "destination",  # operator_intervention: shutdown, crash
    "57014": "limit",  # query_canceled: statement_timeout
    "58": "destination",  # system_error: disk
    "P0": "event",  # what a trigger raises
    "XX001": "destination",  # data_corrupted
    "XX002": "destination",  # index_corrupted
}
"""By SQLSTATE or its class; the SQL or the table is wrong if a code is missing, such as 42P01."""

_CHECKS_ROWS = "ExecWithCheckOptions"
"""The function that raises what row security and views say of a row, partly as 42501.

https://github.com/postgres/postgres/blob/master/src/backend/executor/execMain.c
"""

_BEGIN = b"BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A process that is paused in a transaction holds its row no longer than this."""


async def connected(dsn: Secret) -> Connection:
    """A connection without a transaction. Raises :class:`Unavailable`."""
    text = dsn.read()
    with outages():
        conninfo = make_conninfo(**{**_DEFAULTS, **conninfo_to_dict(text)})
        # No prepared statements: a pooler such as PgBouncer may give each transaction another
        # session.
        connection: Connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, prepare_threshold=None
        )
    return connection


def meaning(error: psycopg.Error) -> Meaning | None:
    """What an error is about; ``None`` if the SQL or the table is wrong."""
    state = error.sqlstate
    if error.diag.source_function == _CHECKS_ROWS:
        return "event"
    if state is not None:
        return MEANINGS.get(state) or MEANINGS.get(state[:2])
    if isinstance(error, psycopg.DataError):
        return "event"
    away = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return "destination" if away else None


def is_outage(error: psycopg.Error) -> bool:
    """Whether the server is down or out of something, rather than the data or the SQL wrong."""
    return meaning(error) in ("destination", "limit")


def is_of_data(error: psycopg.Error) -> bool:
    """Whether a row is refused, and others may not be."""
    return meaning(error) == "event"


@contextmanager
def outages() -> Iterator[None]:
    """Raises :class:`Unavailable` for errors that say that the server is down, and
    :class:`BatchTooLarge` for a limit."""
    try:
        yield
    except psycopg.Error as error:
        if is_outage(error):
            kind = BatchTooLarge if meaning(error) == "limit" else Unavailable
            raise kind(server_message(error)) from error
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
