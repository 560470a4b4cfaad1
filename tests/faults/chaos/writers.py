"""Writers that count. Each change is conditional on the previous one, so none happens twice."""

import random
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import pymongo
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern

from tests.daemon import until
from tests.faults.chaos.history import Change

Documents: TypeAlias = Collection[dict[str, Any]]

DOCUMENTS = 96
_PAUSE_SECONDS = 0.02
_OPERATIONS = {"update": 80, "replace": 10, "delete": 10}
"""The operations on an existing document, in per cent."""
_AT_ONCE = {1: 95, 3: 5}
"""Documents changed at once, in per cent; several are changed in a transaction."""
_PATIENCE_SECONDS = 120.0
"""Long enough for an election, and for a majority that is down for a whole round."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A change of one document from one state to the next."""

    document: int
    change: Change
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def there(self) -> int | None:
        """The document's counter after the change; ``None`` if it is deleted."""
        return None if self.change.operation == "delete" else self.change.number

    def apply(self, collection: Documents, session: ClientSession | None) -> bool:
        """Applies the change; False if the document was not in the expected state."""
        match self.change.operation:
            case "insert":
                collection.insert_one(self.after, session=session)
                return True
            case "delete":
                return collection.delete_one(self.before, session=session).deleted_count == 1
            case "replace":
                done = collection.replace_one(self.before, self.after, session=session)
            case _:
                new = {"$set": {key: self.after[key] for key in ("writer", "n")}}
                done = collection.update_one(self.before, new, session=session)
        return done.matched_count == 1


class Writers:
    """Threads that change random documents of one collection; a context manager.

    A document is ``{_id, writer, n}``. Every change, including a delete, increments the document's
    counter ``n``. :attr:`written` has the changes made, by document, and is complete once the block
    is left. Whatever the server does, each change is made exactly once, and no election rolls it
    back.
    """

    def __init__(self, collection: Documents, count: int, seed: int) -> None:
        self._collection = collection
        # A linearizable read is never undone: every later majority read sees it too.
        self._certain = collection.with_options(read_concern=ReadConcern("linearizable"))
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._locks = [threading.Lock() for _ in range(DOCUMENTS)]
        self._threads = [
            threading.Thread(target=self._run, args=(number, seed), name=f"writer-{number}")
            for number in range(count)
        ]
        self.written: dict[int, list[Change]] = {number: [] for number in range(DOCUMENTS)}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if error is None and self._errors:
            raise self._errors[0]

    def one_more(self) -> int:
        """Inserts one more document after the writers have ended; returns its number."""
        assert self._over.is_set()
        document = len(self.written)
        self.written[document] = []
        with self._collection.database.client.start_session() as session:
            self._change([document], 0, random.Random(0), session)
        return document

    @property
    def count(self) -> int:
        """The number of written changes."""
        return sum(map(len, self.written.values()))

    def _run(self, writer: int, seed: int) -> None:
        # One generator per thread, because the order in which threads draw is not repeatable.
        draw = random.Random(f"{seed} {writer}")
        try:
            with self._collection.database.client.start_session() as session:
                while not self._over.wait(draw.uniform(0, 2 * _PAUSE_SECONDS)):
                    count = draw.choices(list(_AT_ONCE), list(_AT_ONCE.values()))[0]
                    documents = sorted(draw.sample(range(DOCUMENTS), count))
                    with ExitStack() as held:
                        for document in documents:
                            held.enter_context(self._locks[document])
                        self._change(documents, writer, draw, session)
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._errors.append(error)

    def _change(
        self, documents: Sequence[int], writer: int, draw: random.Random, session: ClientSession
    ) -> None:
        steps = [self._step(document, writer, draw) for document in documents]
        until(
            lambda: self._attempted(steps, session),
            f"a change of {documents}",
            seconds=_PATIENCE_SECONDS,
        )
        for step in steps:
            self.written[step.document].append(step.change)

    def _step(self, document: int, writer: int, draw: random.Random) -> _Step:
        history = self.written[document]
        there = history and history[-1].operation != "delete"
        number = len(history) + 1
        drawn = draw.choices(list(_OPERATIONS), list(_OPERATIONS.values()))[0]
        operation = drawn if there else "insert"
        return _Step(
            document,
            Change(operation, number),
            {"_id": document, "n": number - 1},
            {"_id": document, "writer": writer, "n": number},
        )

    def _attempted(self, steps: Sequence[_Step], session: ClientSession) -> bool:
        """True if the change is made, now or by an earlier attempt whose answer was lost."""
        try:
            if self._applied(steps, session):
                return True
            # The document was not in the old state, so check whether it is in the new one.
        except DuplicateKeyError:
            pass
        except PyMongoError:
            return False
        step = steps[0]
        try:
            found = self._certain.find_one({"_id": step.document}, max_time_ms=10_000)
        except PyMongoError:
            return False
        return (found["n"] if found else None) == step.there

    def _applied(self, steps: Sequence[_Step], session: ClientSession) -> bool:
        if len(steps) == 1:
            return steps[0].apply(self._collection, None)
        with session.start_transaction():
            applied = all(step.apply(self._collection, session) for step in steps)
            if not applied:
                session.abort_transaction()
        return applied


def connect(uri: str) -> pymongo.MongoClient[dict[str, Any]]:
    """A client for writers: it does not retry by itself, and notices elections soon.

    A write that it confirms is on a majority of the members.
    """
    return pymongo.MongoClient(
        uri, w="majority", retryWrites=False, heartbeatFrequencyMS=500, connectTimeoutMS=1000
    )
