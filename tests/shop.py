"""The class of docs/handlers.md that stores its position in PostgreSQL, and daemons that run it."""

import re
from typing import Any

import psycopg

from tests.daemon import Daemon, until
from tests.handlers_page import python_block
from tests.orders import Orders
from tests.postgresql import PostgreSQL

STORED = """
    CREATE TABLE stored (number bigserial, id text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO stored (id) VALUES (NEW.id); RETURN NEW;
    END $$;
    CREATE TRIGGER each AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note();
"""
"""Notes what is stored: a repeated insert would not be seen in the table of the class itself."""


class Shop:
    """The collection ``orders``, and a database of PostgreSQL with what ``Orders`` stored."""

    source = python_block("class Orders")
    tables = re.findall('TABLES = """(.*?)"""', source, re.DOTALL)[0]

    def __init__(self, orders: Orders, server: PostgreSQL) -> None:
        self.orders = orders
        self.server = server
        with psycopg.connect(server.dsn, autocommit=True, connect_timeout=60) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {orders.database} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {orders.database}")
        self.dsn = server.dsn.replace("/postgres?", f"/{orders.database}?")
        self.execute(self.tables + STORED)

    def daemon(
        self, directory: str = "run", handler: dict[str, Any] | None = None, **sections: Any
    ) -> Daemon:
        """With the handlers ``table`` and ``file``; it is not started. Attempts are spent soon."""
        table = {
            "type": "python",
            "target": "mine:Orders",
            "options": {"dsn": self.dsn},
            "outages": ["psycopg.OperationalError"],
            "retry": {"attempts": 2, "first_seconds": 0.01, "cap_seconds": 0.01},
            "batch_size": 20,
            **(handler or {}),
        }
        file = {"type": "jsonl", "path": "events.jsonl"}
        return self.orders.daemon(
            directory,
            source=self.source,
            handlers={"table": table, "file": file},
            routes=[{"scope": "orders", "handlers": ["table", "file"]}],
            **sections,
        )

    def execute(self, statements: str) -> None:
        with psycopg.connect(self.dsn, connect_timeout=60) as connection:
            connection.execute(statements)

    def select(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, connect_timeout=60) as connection:
            return connection.execute(query).fetchall()

    @property
    def rows(self) -> list[int]:
        """The ``_id`` of each insert and update, in the order in which they were stored."""
        found = self.select("SELECT id FROM stored ORDER BY number")
        return [int(re.sub(r"\D", "", key)) for (key,) in found]

    def until_rows(self, count: int) -> None:
        until(lambda: len(self.rows) >= count, f"{count} rows")


def until_waiting(run: Daemon, handler: str = "table") -> None:
    """Until the scope says that it waits for the destination of this handler."""
    until(lambda: run.status().get("state") == "waiting", f"that it waits for {handler!r}")
    assert f"handler {handler!r}" in run.status()["reason"]
    assert run.metric("tailrace_destination_up", handler=handler) == 0
