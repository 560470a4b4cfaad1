"""Writers that count, each change conditional on the one before, so that none happens twice."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

import pymongo
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, PyMongoError

from tests.daemon import until
from tests.faults.chaos.history import Change

Documents: TypeAlias = Collection[dict[str, Any]]

DOCUMENTS = 96
_PAUSE_SECONDS = 0.02
_OPERATIONS = {"update": 80, "replace": 10, "delete": 10}
"""Of changes to a document that is there, in per cent."""


class Writers:
    """Threads that change random documents of one collection; a context manager.

    A document is ``{_id, writer, n}``. Every change, deletes included, adds one to its counter,
    and ``n`` says where it is. :attr:`written` is what has been done, by document; it is complete
    once the block is left. Whatever the server does meanwhile, a change is done once.
    """

    def __init__(self, collection: Documents, count: int, seed: int) -> None:
        self._collection = collection
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._locks = [threading.Lock() for _ in range(DOCUMENTS)]
        self._threads = [
            threading.Thread(target=self._run, args=(number, seed), name=f"writer-{number}")
            for number in range(count)
        ]
        self.written: dict[int, list[Change]] = {number: [] for number in range(DOCUMENTS + 1)}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if error is None and self._errors:
            raise self._errors[0]

    def close(self) -> int:
        """Writes one change more when all are done, to a document that had none; says which."""
        assert self._over.is_set()
        self._change(DOCUMENTS, 0, random.Random(0))
        return DOCUMENTS

    @property
    def count(self) -> int:
        """How many changes have been written."""
        return sum(map(len, self.written.values()))

    def _run(self, writer: int, seed: int) -> None:
        # A generator for each: in which order threads ask a common one is not repeatable.
        draw = random.Random(f"{seed} {writer}")
        try:
            while not self._over.wait(draw.uniform(0, 2 * _PAUSE_SECONDS)):
                document = draw.randrange(DOCUMENTS)
                with self._locks[document]:
                    self._change(document, writer, draw)
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._errors.append(error)

    def _change(self, document: int, writer: int, draw: random.Random) -> None:
        history = self.written[document]
        there = history and history[-1].operation != "delete"
        number = len(history) + 1
        operation = (
            draw.choices(list(_OPERATIONS), list(_OPERATIONS.values()))[0] if there else "insert"
        )
        before = {"_id": document, "n": number - 1}
        after = {"_id": document, "writer": writer, "n": number}
        attempts: dict[str, Callable[[], Any]] = {
            "insert": lambda: self._collection.insert_one(after),
            "update": lambda: self._collection.update_one(
                before, {"$set": {"writer": writer, "n": number}}
            ),
            "replace": lambda: self._collection.replace_one(before, after),
            "delete": lambda: self._collection.delete_one(before),
        }
        done = None if operation == "delete" else number
        until(lambda: self._attempted(attempts[operation], document, done), f"change of {document}")
        history.append(Change(operation, number))

    def _attempted(self, attempt: Callable[[], Any], document: int, done: int | None) -> bool:
        """Whether it is done, now or by an attempt before whose answer was lost."""
        try:
            attempt()
        except DuplicateKeyError:
            pass
        except PyMongoError:
            return False
        try:
            found = self._collection.find_one({"_id": document})
        except PyMongoError:
            return False
        return (found["n"] if found else None) == done


def connect(uri: str) -> pymongo.MongoClient[dict[str, Any]]:
    """A client for writers: it tries nothing again by itself, and notices elections soon."""
    return pymongo.MongoClient(uri, retryWrites=False, heartbeatFrequencyMS=500)
