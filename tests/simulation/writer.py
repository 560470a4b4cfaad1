"""Writes the changes of a run, as clients of MongoDB would."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import anyio

from tailrace.event import Namespace
from tailrace.testing.changes import Changes
from tailrace.testing.oplog import Oplog

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario
    from tests.simulation.source import Server

_NAMESPACES = (
    Namespace("shop", "orders"),
    Namespace("shop", "orders"),
    Namespace("shop", "orders"),
    Namespace("shop", "users"),
    Namespace("stock", "orders"),
)
_DOCUMENTS = 6


class Writer:
    """Writes bursts of changes of a few documents: alone, in transactions, and DDL."""

    def __init__(self, oplog: Oplog, server: Server, chance: random.Random, of: Scenario) -> None:
        self._oplog = oplog
        self._server = server
        self._random = chance
        self._of = of
        self._version = 0

    async def run(self) -> None:
        """Writes until all changes are written."""
        left = self._of.changes
        while left > 0:
            burst = self._random.choice([1, 1, 2, 10, 30])
            self.write(burst)
            left -= burst
            pause = burst * self._of.seconds / self._of.changes
            await anyio.sleep(self._random.uniform(0, 2 * pause))

    def write(self, count: int) -> None:
        """Writes about so many changes at once."""
        self._server.set_time()
        while count > 0:
            if self._random.random() < self._of.ddl:
                self._ddl()
                count -= 1
            elif self._random.random() < self._of.transactions:
                size = self._random.randint(2, 6)
                with self._changes().transaction():
                    for _ in range(size):
                        self._change(self._changes())
                count -= size
            else:
                self._change(self._changes())
                count -= 1

    def touch(self) -> None:
        """Writes a change that each scope has."""
        self._server.set_time()
        self._change(self._changes(_NAMESPACES[0]))

    def _changes(self, ns: Namespace | None = None) -> Changes:
        ns = ns or self._random.choice(_NAMESPACES)
        changes = Changes(ns.db, str(ns.coll))
        changes.oplog = self._oplog
        return changes

    def _change(self, changes: Changes) -> None:
        number = self._random.randrange(_DOCUMENTS)
        self._version += 1
        document: dict[str, Any] = {"_id": number, "version": self._version}
        if not any(each["_id"] == number for each in changes.documents):
            changes.insert(document)
        elif (chosen := self._random.random()) < 0.6:
            changes.update(number, {"version": self._version})
        elif chosen < 0.8:
            changes.replace(document)
        else:
            changes.delete(number)

    def _ddl(self) -> None:
        changes = self._changes()
        chosen = self._random.random()
        if chosen < 0.6:
            changes.drop()
        elif chosen < 0.9 and changes.ns in self._oplog.collections:
            names = {str(each.coll) for each in self._oplog.collections}
            free = [name for name in ("orders", "archive", "users") if name not in names]
            if free:
                changes.rename(self._random.choice(free))
        else:
            changes.drop_database()
