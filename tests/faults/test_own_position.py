"""A handler that stores its rows and its position in one transaction, over crashes of the service.

The destination is a real SQLite database, as PostgreSQL or any other would be; beside it a handler
without a position gets what it may get again.
"""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, until
from tests.faults.load import Load
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

SINK = '''
import asyncio
import json
import sqlite3
from bson import Timestamp
from tailrace.model import ResumeToken, SinkPosition


class Orders:
    """Rows and the token of the last one, in one transaction."""

    def __init__(self):
        self.database = sqlite3.connect("orders.db", isolation_level=None)
        self.database.execute("CREATE TABLE IF NOT EXISTS rows (n INTEGER)")
        self.database.execute(
            "CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, token TEXT, s INT, i INT)"
        )

    async def __call__(self, events, scope):
        database, last = self.database, events[-1]
        database.execute("BEGIN IMMEDIATE")
        for event in events:
            database.execute("INSERT INTO rows VALUES (?)", (event.document_key["_id"],))
            await asyncio.sleep(0)
        database.execute(
            "INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)",
            (scope, json.dumps(last.id), last.cluster_time.time, last.cluster_time.inc),
        )
        database.execute("COMMIT")

    async def position(self, scope):
        row = self.database.execute(
            "SELECT token, s, i FROM position WHERE scope = ?", (scope,)
        ).fetchone()
        return row and SinkPosition(ResumeToken.of(json.loads(row[0])), Timestamp(*row[1:]))


orders = Orders()
'''


def rows(directory: Path) -> list[int]:
    path = directory / "orders.db"
    if not path.exists():
        return []
    database = sqlite3.connect(path)
    try:
        return [n for (n,) in database.execute("SELECT n FROM rows ORDER BY rowid")]
    finally:
        database.close()


def inserts(client: Any, database: str) -> Callable[[list[int]], Any]:
    return lambda ids: client[database]["orders"].insert_many([{"_id": n} for n in ids])


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a file"])
def test_each_change_is_stored_once_over_kills(
    mongod: ReplicaSet, database: str, daemon: Make, beside: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    sink = {"type": "python", "target": "sink:orders", "batch_size": 7}
    handlers: dict[str, Any] = {"table": sink}
    if beside:
        handlers["file"] = {"type": "jsonl", "path": "events.jsonl", "json": "canonical"}
    scope = {"name": "orders", "database": database, "collection": "orders"}
    run = daemon(
        mongod.uri,
        checkpoint={"path": "checkpoints.db", "interval_seconds": 0.3},
        scopes=[{**scope, "max_await_time_ms": 200}],
        handlers=handlers,
        routes=[{"scope": "orders", "handlers": list(handlers)}],
    )
    (run.directory / "sink.py").write_text(SINK)
    run.start()
    with mongod.client() as client, Load(inserts(client, database), 0.005) as load:
        for _ in range(6):
            load.more(dice.randrange(20, 120))
            enough = load.written - dice.randrange(20)
            until(lambda enough=enough: len(rows(run.directory)) >= enough, "some rows")
            run.signal(signal.SIGKILL)
            run.wait()
            run.start()
    until(lambda: len(rows(run.directory)) >= load.written, "every row")
    assert run.stop() == 0, run.log
    assert rows(run.directory) == list(range(load.written))
    if beside:
        assert sorted(set(run.ids())) == list(range(load.written))


def test_the_restored_destination_is_brought_up_to_date(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """Its own position, older than the checkpoint, decides."""
    scope = {"name": "orders", "database": database, "collection": "orders"}
    run = daemon(
        mongod.uri,
        scopes=[{**scope, "max_await_time_ms": 200}],
        handlers={"table": {"type": "python", "target": "sink:orders"}},
        routes=[{"scope": "orders", "handlers": ["table"]}],
    )
    (run.directory / "sink.py").write_text(SINK)
    run.start()
    with mongod.client() as client:
        inserts(client, database)(list(range(10)))
    until(lambda: len(rows(run.directory)) == 10, "ten rows")
    assert run.stop() == 0, run.log
    backup = (run.directory / "orders.db").read_bytes()
    run.start()
    with mongod.client() as client:
        inserts(client, database)(list(range(10, 20)))
    until(lambda: len(rows(run.directory)) == 20, "twenty rows")
    assert run.stop() == 0, run.log
    (run.directory / "orders.db").write_bytes(backup)
    run.start()
    until(lambda: len(rows(run.directory)) >= 20, "all of them again")
    assert run.stop() == 0, run.log
    assert rows(run.directory) == list(range(20))
