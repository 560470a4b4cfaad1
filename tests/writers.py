"""Ids of many types, and threads that write documents with them at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any

from bson import Decimal128, Int64, ObjectId
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from tests.mongod import Client


def mixed_ids(count: int) -> list[Any]:
    """Distinct ids of many BSON types."""
    kinds = [
        lambda n: n,
        lambda n: f"t{n}",
        lambda n: Int64(2**40 + n),
        lambda n: n + 0.5,
        lambda n: ObjectId(),
        lambda n: Decimal128(f"{n}.25"),
        lambda n: {"a": n, "b": "x"},
        lambda n: b"%d" % n,
        lambda n: datetime.fromtimestamp(n, UTC),
        lambda n: Timestamp(n, 1),
    ]
    return [kinds[n % len(kinds)](n) for n in range(count)]


_LOOK_SECONDS = 0.25


@dataclass
class Writers:
    """Threads that write at random: inserts, replacements, deletes, transactions, moves.

    They wait while ``behind`` says so. Else a follower may never catch up on a busy machine, and a
    stream that is behind comes before snapshots and verifications.
    """

    client: Client
    database: str
    names: Sequence[str]
    ids: Sequence[Any]
    seed: int
    count: int = 2
    pause: float = 0.0
    behind: Callable[[], bool] = bool
    written: int = 0
    _stop: Event = field(default_factory=Event)
    _may_write: Event = field(default_factory=Event)
    _threads: list[Thread] = field(default_factory=list)

    def __enter__(self) -> Writers:
        self._may_write.set()
        for number in range(self.count):
            dice = random.Random(f"{self.seed}/{number}")
            self._threads.append(Thread(target=self._write, args=(dice,)))
        self._threads.append(Thread(target=self._look))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._may_write.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if self.behind():
                self._may_write.clear()
            else:
                self._may_write.set()
        self._may_write.set()

    def _write(self, dice: random.Random) -> None:
        number = 0
        while not self._stop.wait(self.pause):
            number += 1
            self._may_write.wait()
            collection = self.client[self.database][dice.choice(self.names)]
            with suppress(PyMongoError):
                self._one(dice, collection, f"{dice.random()}/{number}")
                self.written += 1

    def _one(self, dice: random.Random, collection: Any, text: str) -> None:
        key = dice.choice(self.ids)
        match dice.randrange(6):
            case 0 | 1:
                collection.replace_one({"_id": key}, {"v": text, "pad": "x" * dice.randrange(400)})
            case 2:
                collection.delete_one({"_id": key})
            case 3:
                collection.replace_one({"_id": key}, {"v": text}, upsert=True)
            case 4:  # moves a document to another key, so possibly from one chunk to another
                found = collection.find_one_and_delete({"_id": key})
                if found is not None:
                    found["_id"] = dice.choice(self.ids)
                    collection.insert_one(found)
            case _:
                with self.client.start_session() as session, session.start_transaction():
                    for other in dice.sample(list(self.ids), 3):
                        collection.replace_one({"_id": other}, {"v": text}, True, session=session)
                        if dice.random() < 0.3:
                            collection.delete_one({"_id": other}, session=session)
