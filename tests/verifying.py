"""A destination in an SQLite file, whose rows a test can change by hand, and its verification."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.daemon import Daemon, until

# A row has the document as BSON, and its field `n` as a column.
TABLE = '''
import sqlite3
from contextlib import asynccontextmanager, closing

import bson
from tailrace.destination import DocumentId, HeldKey, HeldKeys, HeldRows
from tailrace.errors import Refused

SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    place TEXT, key BLOB, document BLOB, n TEXT, PRIMARY KEY (place, key)
);
CREATE TABLE IF NOT EXISTS positions (scope TEXT PRIMARY KEY, position TEXT);
"""


def opened():
    connection = sqlite3.connect("table.db", isolation_level=None, timeout=20)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")  # the machine does not fail, only the process
    connection.executescript(SCHEMA)
    return closing(connection)


def place(ns):
    return f"{ns.db}.{ns.coll}"


def row(document):
    n = bson.decode(document).get("n")
    if n == "refused":
        raise ValueError("no row is made of it")
    return {"document": document, "n": repr(n)}


class Table:
    async def write(self, batch):
        refused = {}
        with opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for at, event in enumerate(batch):
                key = event.field_bytes("documentKey")
                document = event.field_bytes("fullDocument")
                try:
                    made = row(document) if document is not None else None
                except ValueError as error:
                    refused[at] = str(error)
                    continue
                if made is None:
                    sql = "DELETE FROM rows WHERE (place, key) = (?, ?)"
                    connection.execute(sql, (place(event.ns), key))
                else:
                    sql = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
                    values = made["document"], made["n"]
                    connection.execute(sql, (place(event.ns), key, *values))
            if refused:
                raise Refused(refused)
            if batch.position is not None:
                sql = "INSERT OR REPLACE INTO positions VALUES (?, ?)"
                connection.execute(sql, (batch.scope.name, batch.position))
            connection.execute("COMMIT")

    async def on_ddl(self, event):
        if event.operation_type in ("drop", "rename"):
            with opened() as connection:
                if event.operation_type == "drop":
                    sql = "DELETE FROM rows WHERE place = ?"
                    connection.execute(sql, (place(event.ns),))
                else:
                    sql = "DELETE FROM rows WHERE place = ?"
                    connection.execute(sql, (place(event.to),))
                    sql = "UPDATE rows SET place = ? WHERE place = ?"
                    connection.execute(sql, (place(event.to), place(event.ns)))

    @asynccontextmanager
    async def comparison(self, scope):
        with opened() as connection:
            yield Held(connection, scope.name)


class Positioned(Table):
    async def begin(self, scope):
        with opened() as connection:
            sql = "SELECT position FROM positions WHERE scope = ?"
            found = connection.execute(sql, (scope.name,)).fetchone()
            return found and found[0]


class Held:
    def __init__(self, connection, scope):
        self.connection, self.scope = connection, scope

    async def expected(self, documents):
        made, refused = [], {}
        for at, event in enumerate(documents):
            try:
                made.append(row(event.field_bytes("fullDocument")))
            except ValueError as error:
                refused[at] = str(error)
        if refused:
            raise Refused(refused)
        return made

    async def stored(self, collection, keys):
        self.connection.execute("BEGIN")
        sql = "SELECT document, n FROM rows WHERE (place, key) = (?, ?)"
        rows = [
            self.connection.execute(sql, (place(collection), key.raw)).fetchone() for key in keys
        ]
        sql = "SELECT position FROM positions WHERE scope = ?"
        found = self.connection.execute(sql, (self.scope,)).fetchone()
        self.connection.execute("COMMIT")
        rows = [row and {"document": row[0], "n": row[1]} for row in rows]
        return HeldRows(rows, found and found[0])

    async def stored_keys(self, collection, after, most):
        sql = "SELECT key FROM rows WHERE place = ? AND hex(key) > ? ORDER BY hex(key) LIMIT ?"
        found = self.connection.execute(sql, (place(collection), after or "", most)).fetchall()
        keys = [
            HeldKey(str(bson.decode(key)["_id"]), DocumentId(key))
            if len(key) > 4 and len(key) == int.from_bytes(key[:4], "little")
            else HeldKey(repr(key), None)
            for (key,) in found
        ]
        return HeldKeys(keys, found[-1][0].hex().upper() if len(found) == most else None)
'''


def verified(run: Daemon, *options: str, scope: str = "orders") -> dict[str, Any]:
    """The result of ``tailrace verify``, whose exit code says the same. It may take as long as it
    gets further: beside writers it waits for documents that change again and again."""

    def compared() -> object:
        answer = run.get(f"/scopes/{scope}/verify?keys=false")[1]
        found = json.loads(answer)["verification"] if answer.startswith("{") else None
        return found and [found[key] for key in ("state", "compared", "in_flux", "repair")]

    with run.begun("verify", scope, "--json", *options) as command:
        until(lambda: command.poll() is not None, "the end of verify", progress=compared)
        output, errors = command.communicate()
        code = command.returncode
    assert code in (0, 1), errors
    found: dict[str, Any] = json.loads(output)
    differences = found["different"] + found["missing"] + found["too_many"]
    assert code == (1 if differences else 0)
    return found


@contextmanager
def by_hand(run: Daemon) -> Iterator[sqlite3.Connection]:
    """The rows, to change them."""
    connection = sqlite3.connect(run.directory / "table.db", timeout=20)
    with connection:
        yield connection
    connection.close()


def differing(found: dict[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """The differences, by kind and key."""
    return sorted((one["kind"], one["key"], tuple(one["fields"])) for one in found["keys"])
