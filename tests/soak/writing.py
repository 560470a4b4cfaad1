"""Changes at a steady rate to documents whose number stays about the same."""

from __future__ import annotations

import itertools
import random
import secrets
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.errors import PyMongoError

from tests.background import in_background
from tests.mongod import Client, ReplicaSet
from tests.soak.plan import SoakPlan

DATABASE = "shop"
COLLECTIONS = ("orders", "customers", "items")

_TEXT = secrets.token_hex(50_000)
_TEXT_BYTES = 600
_TRANSACTION_EVERY = 10
_UPDATES = 0.6


def soak_document(number: int, dice: random.Random) -> dict[str, Any]:
    """One of about 700 B. Each update adds 1 to ``n``, so that the one that is missing shows."""
    return {"_id": f"d{number}", "n": 0, "number": number, "tags": ["a", "b"], "text": _text(dice)}


class BalancedChanges:
    """A thread that inserts, updates and deletes; every tenth round is a transaction.

    An id is used once. A round that fails may have been written in part: what it was about is
    still known as if it were there, which the next changes of these documents do not mind.
    """

    def __init__(self, server: ReplicaSet, plan: SoakPlan) -> None:
        self.written = 0
        self.failed_rounds = 0
        self._server = server
        self._plan = plan
        self._dice = random.Random(1)
        self._numbers = itertools.count()
        self._ids: dict[str, list[str]] = {name: [] for name in COLLECTIONS}
        self._over = threading.Event()

    def fill(self) -> None:
        """Inserts the documents that are there before the service begins."""
        with self._server.client() as client:
            for name, ids in self._ids.items():
                numbers = itertools.islice(self._numbers, self._plan.documents // len(COLLECTIONS))
                documents = [soak_document(number, self._dice) for number in numbers]
                client[DATABASE][name].insert_many(documents)
                ids += [document["_id"] for document in documents]

    def going_on(self) -> AbstractContextManager[None]:
        return in_background(self._write, self._over, "changes")

    def _write(self) -> None:
        rounds_per_second = min(20.0, self._plan.rate / 50)
        at_once = max(1, round(self._plan.rate / rounds_per_second))
        due = time.monotonic()
        with self._server.client(heartbeatFrequencyMS=1000) as client:
            for number in itertools.count():
                if self._over.wait(max(due - time.monotonic(), 0)):
                    return
                due = max(due + 1 / rounds_per_second, time.monotonic() - 1)
                try:
                    self._round(client, at_once, grouped=number % _TRANSACTION_EVERY == 0)
                except PyMongoError:  # no primary: later
                    self.failed_rounds += 1
                else:
                    self.written += at_once

    def _round(self, client: Client, count: int, *, grouped: bool) -> None:
        name = self._dice.choice(COLLECTIONS)
        ids = self._ids[name]
        changes = [self._change(ids) for _ in range(count)]
        with ExitStack() as stack:
            session = None
            if grouped:
                session = stack.enter_context(client.start_session())
                stack.enter_context(session.start_transaction())
            # Unordered: one command for each kind; inserts before updates, and deletes last.
            client[DATABASE][name].bulk_write(changes, ordered=False, session=session)

    def _change(self, ids: list[str]) -> Any:
        at = self._dice.randrange(len(ids))
        if self._dice.random() < _UPDATES:
            fields = {
                f"at{self._dice.randrange(5)}": self._dice.random(),
                "text": _text(self._dice),
            }
            return UpdateOne({"_id": ids[at]}, {"$inc": {"n": 1}, "$set": fields})
        most = self._plan.documents // len(COLLECTIONS)
        if len(ids) > most or (len(ids) > most / 2 and self._dice.random() < 0.5):
            ids[at], ids[-1] = ids[-1], ids[at]
            return DeleteOne({"_id": ids.pop()})
        document = soak_document(next(self._numbers), self._dice)
        ids.append(document["_id"])
        return InsertOne(document)


def _text(dice: random.Random) -> str:
    begin = dice.randrange(len(_TEXT) - _TEXT_BYTES)
    return _TEXT[begin : begin + _TEXT_BYTES]
