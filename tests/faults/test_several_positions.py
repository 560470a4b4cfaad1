"""Several handlers of one scope, two of which store their own position: stops, kills, restores.

The destinations are SQLite databases, as PostgreSQL or any other would be. Beside them are a plain
handler, some of whose calls fail and wait for their next attempt, and one of sequences.
"""

from __future__ import annotations

import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, until, whole_lines
from tests.faults.load import Load
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]

HANDLERS = '''
import asyncio
import json
import os
import random
import sqlite3
from bson import Timestamp
from tailrace.model import SinkPosition


class Table:
    """Rows and the id of the last one, in one transaction, by scope."""

    def __init__(self, name):
        self.database = sqlite3.connect(name, isolation_level=None)
        self.database.executescript(
            "PRAGMA synchronous = OFF;"  # no power is cut here
            "CREATE TABLE IF NOT EXISTS rows (scope TEXT, n INTEGER);"
            "CREATE TABLE IF NOT EXISTS position (scope TEXT PRIMARY KEY, id TEXT, s INT, i INT)"
        )

    def store(self, events, scope):
        database, last = self.database, events[-1]
        database.execute("BEGIN IMMEDIATE")
        rows = [(scope, event.document_key["_id"]) for event in events]
        database.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        time = last.cluster_time
        position = (scope, json.dumps(last.id), time.time, time.inc)
        database.execute("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)", position)
        database.execute("COMMIT")

    async def position(self, scope):
        found = self.database.execute(
            "SELECT id, s, i FROM position WHERE scope = ?", (scope,)
        ).fetchone()
        return found and SinkPosition(json.loads(found[0]), Timestamp(*found[1:]))


class Sequences(Table):
    async def __call__(self, events: list, scope):
        await asyncio.sleep(random.random() / 100)
        self.store(events, scope)
        await asyncio.sleep(random.random() / 100)


class Singles(Table):
    async def __call__(self, event, scope):
        self.store([event], scope)


sequences = Sequences("sequences.db")
singles = Singles("singles.db")
failed = set()


async def plain(event):
    n = event.document_key["_id"]
    if n % 37 == 5 and n not in failed and not os.path.exists("calm"):
        failed.add(n)
        raise ConnectionError("not now")
    await asyncio.sleep(random.random() / 50)
    note("plain", [n])


async def batches(events: list):
    await asyncio.sleep(random.random() / 50)
    note("batches", [event.document_key["_id"] for event in events])


def note(name, numbers):
    line = "".join(f"{n}\\n" for n in numbers).encode()
    descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)
'''

PLAIN = ("plain", "batches")
WAITS = {"attempts": 3, "first_seconds": 3600, "cap_seconds": 3600}
"""What fails waits for its next attempt until the process ends."""


class Scope:
    """A daemon on one collection, with what its handlers have."""

    def __init__(self, daemon: Make, mongod: ReplicaSet, database: str) -> None:
        targets = {
            "sequences": {"target": "handlers:sequences", "batch_size": 7},
            "singles": {"target": "handlers:singles"},
            "plain": {"target": "handlers:plain", "retry": WAITS},
            "batches": {"target": "handlers:batches", "batch_size": 10},
        }
        scope = {"name": "orders", "database": database, "collection": "orders"}
        self.run = daemon(
            mongod.uri,
            checkpoint={"path": "checkpoints.db", "interval_seconds": 0.3},
            scopes=[{**scope, "max_await_time_ms": 200}],
            handlers={name: {"type": "python", **each} for name, each in targets.items()},
            routes=[{"scope": "orders", "handlers": list(targets)}],
        )
        (self.run.directory / "handlers.py").write_text(HANDLERS)

    def noted(self, name: str) -> list[int]:
        """What a plain handler has handled, in order."""
        path = self.run.directory / name
        return [int(line) for line in whole_lines(path.read_text())] if path.exists() else []

    def rows(self, name: str, scope: str = "orders") -> list[int]:
        return rows(self.run.directory / f"{name}.db", scope)


def rows(path: Path, scope: str) -> list[int]:
    if not path.exists():
        return []
    database = sqlite3.connect(path)
    try:
        found = database.execute("SELECT n FROM rows WHERE scope = ? ORDER BY rowid", (scope,))
        return [n for (n,) in found]
    finally:
        database.close()


def inserts(client: Any, database: str, dice: random.Random) -> Callable[[list[int]], Any]:
    """Some of them in a transaction, whose events have one cluster time."""

    def insert(numbers: list[int]) -> None:
        orders = client[database]["orders"]
        documents = [{"_id": n} for n in numbers]
        if dice.random() < 0.7:
            orders.insert_many(documents)
            return
        with client.start_session() as session, session.start_transaction():
            orders.insert_many(documents, session=session)

    return insert


class Kept:
    """What plain handlers had handled in processes that ended well: it must not come again."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._seen = dict.fromkeys(PLAIN, 0)
        self._kept: dict[str, set[int]] = {name: set() for name in PLAIN}

    def ended(self, *, well: bool) -> None:
        """A process has ended."""
        for name in PLAIN:
            noted = self._scope.noted(name)
            handled = noted[self._seen[name] :]
            self._seen[name] = len(noted)
            assert not self._kept[name] & set(handled), name
            if well:
                assert len(set(handled)) == len(handled), name
                self._kept[name] |= set(handled)


def test_each_change_comes_once_over_kills_and_clean_stops(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    """Once to a destination with a position; to others never again what they had at a stop."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    scope = Scope(daemon, mongod, database)
    kept = Kept(scope)
    run = scope.run.start()
    with (
        mongod.client() as client,
        Load(inserts(client, database, dice), 0.03) as load,
    ):
        for _ in range(10):
            load.more(dice.randrange(20, 150))
            enough = load.written - dice.randrange(60)
            until(lambda enough=enough: len(scope.rows("singles")) >= enough, "some rows")
            well = dice.random() < 0.5
            run.signal(signal.SIGTERM if well else signal.SIGKILL)
            assert run.wait() == 0 or not well, run.log
            kept.ended(well=well)
            run.start()
    assert run.stop() == 0, run.log
    kept.ended(well=True)
    (run.directory / "calm").touch()
    run.start()
    everything = set(range(load.written))
    for name in PLAIN:
        until(lambda name=name: set(scope.noted(name)) == everything, f"all of {name}")
    for name in ("sequences", "singles"):
        until(lambda name=name: len(scope.rows(name)) >= len(everything), f"all rows of {name}")
    assert run.stop() == 0, run.log
    kept.ended(well=True)
    for name in ("sequences", "singles"):
        assert scope.rows(name) == list(range(load.written)), name


def test_nothing_is_repeated_over_clean_stops_alone(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    dice = random.Random(7)
    scope = Scope(daemon, mongod, database)
    run = scope.run.start()
    with (
        mongod.client() as client,
        Load(inserts(client, database, dice), 0.02) as load,
    ):
        for _ in range(6):
            load.more(60)
            assert run.stop() == 0, run.log
            run.start()
    assert run.stop() == 0, run.log
    (run.directory / "calm").touch()
    run.start()
    for name in PLAIN:
        until(lambda name=name: len(scope.noted(name)) >= load.written, f"all of {name}")
    for name in ("sequences", "singles"):
        until(lambda name=name: len(scope.rows(name)) >= load.written, f"all rows of {name}")
    assert run.stop() == 0, run.log
    for name in PLAIN:
        assert Counter(scope.noted(name)) == Counter(range(load.written)), name
    for name in ("sequences", "singles"):
        assert scope.rows(name) == list(range(load.written)), name


def test_a_restored_destination_alone_gets_again_what_it_lost(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    scope = Scope(daemon, mongod, database)
    run = scope.run
    (run.directory / "calm").touch()
    run.start()
    with mongod.client() as client:
        orders = client[database].orders
        orders.insert_many([{"_id": n} for n in range(20)])
        until(lambda: len(scope.rows("sequences")) == 20, "twenty rows")
        assert run.stop() == 0, run.log
        backup = (run.directory / "sequences.db").read_bytes()
        run.start()
        orders.insert_many([{"_id": n} for n in range(20, 40)])
        until(lambda: len(scope.rows("sequences")) == 40, "forty rows")
        assert run.stop() == 0, run.log
        (run.directory / "sequences.db").write_bytes(backup)
        run.start()
        orders.insert_many([{"_id": n} for n in range(40, 45)])
        for name in PLAIN:
            until(lambda name=name: len(scope.noted(name)) >= 45, f"all of {name}")
        until(lambda: len(scope.rows("sequences")) >= 45, "all rows")
        assert run.stop() == 0, run.log
    for name in ("sequences", "singles"):
        assert scope.rows(name) == list(range(45)), name
    for name in PLAIN:
        assert sorted(scope.noted(name)) == list(range(45)), name


def test_scopes_that_share_a_destination_each_have_a_position_there(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    handlers = {"table": {"type": "python", "target": "handlers:sequences", "batch_size": 7}}
    names = ("orders", "users")
    run = daemon(
        mongod.uri,
        checkpoint={"path": "checkpoints.db", "interval_seconds": 0.3},
        scopes=[
            {"name": name, "database": database, "collection": name, "max_await_time_ms": 200}
            for name in names
        ],
        handlers=handlers,
        routes=[{"scope": name, "handlers": ["table"]} for name in names],
    )
    (run.directory / "handlers.py").write_text(HANDLERS)
    path = run.directory / "sequences.db"
    run.start()
    with mongod.client() as client:
        for first in range(0, 60, 20):
            for name in names:
                client[database][name].insert_many([{"_id": n} for n in range(first, first + 20)])
            until(lambda first=first: len(rows(path, "users")) > first, "some rows")
            run.signal(signal.SIGKILL)
            run.wait()
            run.start()
        for name in names:
            until(lambda name=name: len(rows(path, name)) >= 60, f"all rows of {name}")
    assert run.stop() == 0, run.log
    for name in names:
        assert rows(path, name) == list(range(60)), name


def test_a_position_that_the_server_refuses_halts_the_scope_and_names_the_handler(
    mongod: ReplicaSet, database: str, daemon: Make
) -> None:
    run = daemon(
        mongod.uri,
        scopes=[{"name": "orders", "database": database, "collection": "orders"}],
        handlers={"table": {"type": "python", "target": "foreign:table"}},
        routes=[{"scope": "orders", "handlers": ["table"]}],
    )
    (run.directory / "foreign.py").write_text(
        "class Table:\n"
        "    async def __call__(self, events: list): pass\n"
        "    async def position(self, scope): return {'number': 5}\n"
        "table = Table()\n"
    )
    run.start(ready=False)
    until(lambda: run.logged("scope.halted"), "the halt")
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "the position that handler 'table' stored is no resume token" in halted["error"]
