"""The class of docs/handlers.md that stores its position, with a real PostgreSQL."""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.daemon import Daemon, until
from tests.handlers_page import python_block
from tests.orders import Orders
from tests.postgresql import PostgreSQL, postgresql

COUNTED = """
    CREATE TABLE counted (id text, state text);
    CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO counted VALUES (NEW.id, NEW.document ->> 'state'); RETURN NEW;
    END $$;
    CREATE TRIGGER each AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION count_it();
"""
"""Counts what is applied: a repeated insert would not be seen in the table itself."""


@pytest.fixture
def postgres() -> Iterator[PostgreSQL]:
    with postgresql() as server:
        yield server


def rows(postgres: PostgreSQL, query: str) -> list[Any]:
    with psycopg.connect(postgres.dsn) as connection:
        return connection.execute(query).fetchall()


def following(orders: Orders, postgres: PostgreSQL) -> Daemon:
    table = {
        "type": "python",
        "target": "mine:Orders",
        "options": {"dsn": postgres.dsn},
        "outages": ["psycopg.OperationalError"],
    }
    return orders.daemon(
        source=python_block("class Orders"),
        scope={"full_document": "lookup"},
        handlers={"table": table, "audit": {"type": "jsonl", "path": "events.jsonl"}},
        routes=[{"scope": "orders", "handlers": ["table", "audit"]}],
    )


def test_each_change_is_applied_once_over_kills_outages_and_a_start_without_the_database(
    orders: Orders, postgres: PostgreSQL
) -> None:
    """The other handler of the scope gets its events meanwhile."""
    run = following(orders, postgres).start()
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(COUNTED)
    orders.insert(*range(100), state="new")
    until(lambda: rows(postgres, "SELECT 1 FROM orders"), "a first order")
    run.kill()
    run.start()
    postgres.stop()
    orders.insert(*range(100, 200), state="new")
    until(lambda: len({event["documentKey"]["_id"] for event in run.events()}) == 200, "the file")
    until(lambda: run.status()["state"] == "waiting", "the state waiting")
    run.kill()
    run.start()  # while the database is down
    orders.insert(*range(200, 300), state="new")
    until(lambda: run.status()["state"] == "waiting", "the state waiting")
    postgres.start()
    until(lambda: len(rows(postgres, "SELECT id FROM orders")) == 300, "all orders")
    with orders.server.client() as client:
        client[orders.database].orders.update_many({}, {"$set": {"state": "paid"}})
        client[orders.database].orders.delete_many({"_id": {"$gte": 290}})
    until(lambda: len(rows(postgres, "SELECT id FROM orders")) == 290, "the deletions")
    assert run.stop() == 0
    applied = rows(postgres, "SELECT id, state FROM counted WHERE state = 'new'")
    assert len(applied) == len(set(applied)) == 300
    ids = {int(re.sub(r"\D", "", found)) for (found,) in rows(postgres, "SELECT id FROM orders")}
    assert len(ids) == 290
    states = rows(postgres, "SELECT DISTINCT document ->> 'state' FROM orders")
    assert states == [("paid",)]
    assert not run.logged("event.dead_lettered")


def test_a_process_that_was_replaced_is_fenced(orders: Orders, postgres: PostgreSQL) -> None:
    run = following(orders, postgres).start()
    orders.insert(1, state="new")
    until(lambda: rows(postgres, "SELECT 1 FROM orders"), "the order")
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("UPDATE position SET epoch = epoch + 1")
    orders.insert(2, state="new")
    until(lambda: run.status()["state"] == "halted", "the halt")
    assert "another process has written since" in run.status()["reason"]
    assert rows(postgres, "SELECT document ->> '_id' FROM orders") == [("1",)]
    run.stop()
