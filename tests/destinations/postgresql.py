"""PostgreSQL as a destination: each test has a database, a role and a file with the dsn."""

import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.destinations.destination import Make, Sent, last_states
from tests.postgresql import PostgreSQL, postgresql


class PostgreSQLDestination:
    """Tables named after collections, or the log table ``changes``."""

    name = "postgresql"
    once = True
    refused: Mapping[str, Any] | None = {"text": "a\0b"}

    def __init__(self, server: PostgreSQL, database: str, directory: Path, *, log: bool) -> None:
        self.server = server
        self.database = database
        self.dsn = server.dsn.replace("/postgres?", f"/{database}?")
        """The superuser's."""
        self._log = log
        self._role = f"{database}_0"
        self._file = directory / f"{database}.dsn"
        names = {"role": sql.Identifier(self._role), "database": sql.Identifier(database)}
        with psycopg.connect(server.dsn, autocommit=True, connect_timeout=60) as connection:
            for statement in (
                "DROP DATABASE IF EXISTS {database} WITH (FORCE)",
                "DROP ROLE IF EXISTS {role}",
                "CREATE ROLE {role} LOGIN",
                "CREATE DATABASE {database} OWNER {role}",
            ):
                connection.execute(sql.SQL(statement).format(**names))
        self._write(self._role)
        form = {"log": "changes"} if log else {"table": "{collection}"}
        self.handler: Mapping[str, Any] = {
            "type": "postgresql",
            "dsn": {"file": str(self._file)},
            **form,
        }

    def start(self) -> None:
        self.server.start()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.server.stop(number)

    def pause(self) -> None:
        self.server.pause()

    def sent(self) -> Sequence[Sent] | None:
        if not self._log:
            return None
        columns = "SELECT key, op, event -> 'fullDocument', id FROM changes ORDER BY position"
        return [Sent(*row) for row in self.query(columns)]

    def documents(self, database: str, collection: str) -> Mapping[str, Mapping[str, Any]]:
        if not self._log:
            query = "SELECT key, document FROM {}"
            return dict(self.query(query, collection))
        return last_states(self.sent() or ())

    def query(self, query: LiteralString, *tables: str) -> list[tuple[Any, ...]]:
        """The rows; none if a table is not there."""
        names = [sql.Identifier(table) for table in tables]
        connected = psycopg.connect(self.dsn, autocommit=True, connect_timeout=60)
        with connected as connection, suppress(psycopg.errors.UndefinedTable):
            return connection.execute(sql.SQL(query).format(*names)).fetchall()
        return []

    def execute(self, statement: Any) -> None:
        dsn = make_conninfo(self.dsn, options="-c default_transaction_read_only=off")
        with psycopg.connect(dsn, autocommit=True, connect_timeout=60) as connection:
            connection.execute(statement)

    @contextmanager
    def on_disk(self, directory: Path) -> Iterator[None]:
        """New tables are in the directory, which is a disk; at the end nothing is left there."""
        self.server.own(directory)
        names = {
            "space": sql.Identifier(f"{self.database}_disk"),
            "of": sql.Identifier(self.database),
        }
        made = "CREATE TABLESPACE {space} LOCATION {place}"
        self.execute(sql.SQL(made).format(**names, place=sql.Literal(str(directory))))
        self.execute(sql.SQL("GRANT CREATE ON TABLESPACE {space} TO PUBLIC").format(**names))
        default = "ALTER DATABASE {of} SET default_tablespace = {space}"
        self.execute(sql.SQL(default).format(**names))
        try:
            yield
        finally:
            self.execute(sql.SQL("ALTER DATABASE {of} RESET default_tablespace").format(**names))
            self.execute("DROP SCHEMA public CASCADE")
            self.execute(sql.SQL("DROP TABLESPACE {space}").format(**names))

    def expire(self) -> None:
        """The role may not log in any more, and its connections end."""
        role = sql.Identifier(self._role)
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=60) as connection:
            connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(role))
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s",
                (self._role,),
            )

    def renew(self) -> None:
        """Another role, which may do what the first one may."""
        former, self._role = self._role, f"{self._role}_"
        names = {"new": sql.Identifier(self._role), "former": sql.Identifier(former)}
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=60) as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {new}").format(**names))
            connection.execute(sql.SQL("CREATE ROLE {new} LOGIN IN ROLE {former}").format(**names))
        self._write(self._role)

    def _write(self, role: str) -> None:
        self._file.write_text(self.dsn.replace("//postgres@", f"//{role}@"))


@contextmanager
def serve() -> Iterator[Make]:
    with postgresql() as server, tempfile.TemporaryDirectory() as directory:

        def make(name: str, *, log: bool = False) -> PostgreSQLDestination:
            server.start()
            return PostgreSQLDestination(server, name, Path(directory), log=log)

        yield make
