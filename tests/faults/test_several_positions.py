"""Several handlers of one scope, two of which store their own position: stops, kills, restores.

The destinations are SQLite databases, as PostgreSQL or any other would be. Beside them are a plain
handler, some of whose calls fail and wait for their next attempt, and one of sequences.
"""

from __future__ import annotations

import random
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import until
from tests.load import Load
from tests.orders import Orders

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
OWNERS = ("sequences", "singles")
WAITS = {"attempts": 3, "first_seconds": 3600, "cap_seconds": 3600}
"""What fails waits for its next attempt until the process ends."""
TARGETS: dict[str, dict[str, Any]] = {
    "sequences": {"target": "mine:sequences", "batch_size": 7},
    "singles": {"target": "mine:singles"},
    "plain": {"target": "mine:plain", "retry": WAITS},
    "batches": {"target": "mine:batches", "batch_size": 10},
}


class Scope:
    """A daemon on one collection, with what its handlers have."""

    def __init__(self, orders: Orders, *names: str, **sections: Any) -> None:
        self._names = names or tuple(TARGETS)
        self.run = orders.daemon(
            targets={name: TARGETS[name] for name in self._names},
            source=HANDLERS,
            checkpoint={"interval_seconds": 0.3},
            **sections,
        )

    def had(self, name: str, scope: str = "orders") -> list[int]:
        """What a handler has got, in order."""
        if name in OWNERS:
            return rows(self.run.directory / f"{name}.db", scope)
        return self.run.numbers(name)

    def calm(self) -> None:
        """No attempt fails any more."""
        (self.run.directory / "calm").touch()

    def ends_with(self, count: int) -> None:
        """Waits until all have so many, and stops: owners have each once, in order."""
        for name in self._names:
            until(lambda name=name: len(set(self.had(name))) >= count, f"all of {name}")
        assert self.run.stop() == 0, self.run.log
        for name in self._names:
            had = self.had(name)
            assert sorted(set(had)) == list(range(count)), name
            assert name not in OWNERS or had == list(range(count)), name


def rows(path: Path, scope: str) -> list[int]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT n FROM rows WHERE scope = ? ORDER BY rowid", (scope,))
        return [n for (n,) in found]


def inserts(client: Any, orders: Orders, dice: random.Random) -> Callable[[list[int]], Any]:
    """Some of them in a transaction, whose events have one cluster time."""

    def insert(numbers: list[int]) -> None:
        collection = client[orders.database]["orders"]
        documents = [{"_id": n} for n in numbers]
        if dice.random() < 0.7:
            collection.insert_many(documents)
            return
        with client.start_session() as session, session.start_transaction():
            collection.insert_many(documents, session=session)

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
            noted = self._scope.had(name)
            handled = noted[self._seen[name] :]
            self._seen[name] = len(noted)
            assert not self._kept[name] & set(handled), name
            if well:
                assert len(set(handled)) == len(handled), name
                self._kept[name] |= set(handled)


@pytest.mark.parametrize("names", [(), ("sequences",)], ids=["four", "one alone"])
def test_each_change_comes_once_over_kills_and_clean_stops(
    orders: Orders, names: tuple[str, ...]
) -> None:
    """Once to a destination with a position; to others never again what they had at a stop."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    scope = Scope(orders, *names)
    kept = Kept(scope)
    run = scope.run.start()
    with orders.server.client() as client, Load(inserts(client, orders, dice), 0.01) as load:
        for _ in range(5):
            load.more(dice.randrange(20, 150))
            enough = load.written - dice.randrange(60)
            until(lambda enough=enough: len(scope.had("sequences")) >= enough, "some rows")
            well = dice.random() < 0.5
            run.signal(signal.SIGTERM if well else signal.SIGKILL)
            assert run.wait() == 0 or not well, run.log
            kept.ended(well=well)
            run.start()
    assert run.stop() == 0, run.log
    kept.ended(well=True)
    scope.calm()
    run.start()
    scope.ends_with(load.written)
    kept.ended(well=True)


def test_a_restored_destination_alone_gets_again_what_it_lost(orders: Orders) -> None:
    """Its own position, older than the checkpoint, decides."""
    scope = Scope(orders)
    scope.calm()
    run = scope.run.start()
    path = run.directory / "sequences.db"
    orders.insert(*range(20))
    until(lambda: len(scope.had("sequences")) == 20, "twenty rows")
    assert run.stop() == 0, run.log
    backup = path.read_bytes()
    run.start()
    orders.insert(*range(20, 40))
    until(lambda: len(scope.had("sequences")) == 40, "forty rows")
    assert run.stop() == 0, run.log
    path.write_bytes(backup)
    run.start()
    orders.insert(*range(40, 45))
    scope.ends_with(45)
    for name in PLAIN:
        assert sorted(scope.had(name)) == list(range(45)), name


def test_scopes_that_share_a_destination_each_have_a_position_there(orders: Orders) -> None:
    names = ("orders", "users")
    scope = Scope(
        orders,
        "sequences",
        scopes=[orders.scope(name=name, collection=name) for name in names],
    )
    run = scope.run
    run.configuration["routes"] = [{"scope": name, "handlers": ["sequences"]} for name in names]
    run.start()
    for first in range(0, 60, 20):
        for name in names:
            orders.insert(*range(first, first + 20), collection=name)
        until(lambda first=first: len(scope.had("sequences", "users")) > first, "some rows")
        run.signal(signal.SIGKILL)
        run.wait()
        run.start()
    for name in names:
        until(lambda name=name: len(scope.had("sequences", name)) >= 60, f"all rows of {name}")
    assert run.stop() == 0, run.log
    for name in names:
        assert scope.had("sequences", name) == list(range(60)), name


FOREIGN = """
class Table:
    async def __call__(self, events: list): pass
    async def position(self, scope): return {"number": 5}


table = Table()
"""


def test_a_position_that_the_server_refuses_halts_the_scope_and_names_the_handler(
    orders: Orders,
) -> None:
    run = orders.daemon(targets={"table": {"target": "mine:table"}}, source=FOREIGN)
    run.start(ready=False)
    assert run.wait() == 1
    (halted,) = run.logged("scope.halted")
    assert "the position that handler 'table' stored is no resume token" in halted["error"]
