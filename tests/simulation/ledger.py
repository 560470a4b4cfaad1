"""What each handler must have, and what it must not get: the model of the promises.

Every change has a number: twice its index in the oplog, and one more for the invalidate after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.testing.entry import OF_DOCUMENTS, Entry
from tailrace.testing.oplog import Oplog
from tailrace.testing.tokens import invalidate_token

Document = tuple[Any, bytes]
"""The UUID of its collection, and its key."""


class Violation(AssertionError):
    """A promise is broken."""


class Expected:
    """The changes that a scope has, in order, as they are written."""

    def __init__(self, oplog: Oplog, scope: Scope) -> None:
        self._oplog = oplog
        self._scope = scope
        self._known = 0
        self._numbers: dict[str, int] = {}
        """By the data of its token."""
        self._changes: list[int] = []
        self._barriers: list[int] = []
        self._documents: defaultdict[Document, list[int]] = defaultdict(list)
        self._document_of: dict[int, Document] = {}

    @property
    def changes(self) -> Sequence[int]:
        """Every change of the scope so far."""
        self._read()
        return self._changes

    def number(self, event: ChangeEvent) -> int:
        """The change of an event. Raises :class:`Violation` if the scope does not have it."""
        self._read()
        data = event.id["_data"]
        if data not in self._numbers:
            raise Violation(f"a handler got {event!r}, which its scope does not have")
        return self._numbers[data]

    def time(self, number: int) -> Timestamp:
        """When the change happened."""
        return self._oplog.entries[number // 2].time

    def name(self, number: int) -> str:
        """The change, for people."""
        entry = self._oplog.entries[number // 2]
        what = "invalidate after" if number % 2 else entry.operation
        return f"{number} ({what} {entry.ns} {entry.key!r} at {entry.time.time}.{entry.time.inc})"

    def document(self, number: int) -> Document | None:
        """Its document; ``None`` for DDL and invalidates."""
        return self._document_of.get(number)

    def before(self, number: int) -> Iterator[int]:
        """What must be handled before it: the former change of its document, and the last barrier;
        for a barrier, all since the last one."""
        self._read()
        at = bisect_right(self._barriers, number - 1)
        barrier = self._barriers[at - 1] if at else -1
        if barrier >= 0:
            yield barrier
        document = self.document(number)
        if document is None:
            begin = bisect_right(self._changes, barrier)
            yield from self._changes[begin : bisect_right(self._changes, number - 1)]
        else:
            of = self._documents[document]
            yield from of[bisect_right(of, barrier) : bisect_right(of, number - 1)]

    def between(self, document: Document, after: int, before: int) -> Sequence[int]:
        """The changes of a document between two of them."""
        of = self._documents[document]
        return of[bisect_right(of, after) : bisect_right(of, before - 1)]

    def _read(self) -> None:
        for index in range(self._known, self._oplog.end):
            entry = self._oplog.entries[index]
            if self._sees(entry):
                self._add(2 * index, entry.token, entry)
                if self._ends(entry):
                    data = invalidate_token({"_data": entry.token})["_data"]
                    self._add(2 * index + 1, data, None)
        self._known = self._oplog.end

    def _add(self, number: int, data: str, entry: Entry | None) -> None:
        self._numbers[data] = number
        self._changes.append(number)
        if entry is not None and entry.key is not None:
            document = entry.uuid, entry.key
            self._documents[document].append(number)
            self._document_of[number] = document
        else:
            self._barriers.append(number)

    def _sees(self, entry: Entry) -> bool:
        scope = self._scope
        names = [entry.ns, *([entry.to] if entry.to is not None else [])]
        if scope.database is None:
            return True
        return any(ns.db == scope.database and scope.collection in (None, ns.coll) for ns in names)

    def _ends(self, entry: Entry) -> bool:
        if self._scope.database is None or entry.operation in OF_DOCUMENTS:
            return False
        of_collection = self._scope.collection is not None and entry.operation in ("drop", "rename")
        return of_collection or entry.operation == "dropDatabase"


@dataclass(eq=False)
class Reasons:
    """Why changes may come again that a handler has answered: ``number`` grows with each reason."""

    number: int = 0
    last: str = ""
    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def note(self, reason: str) -> None:
        """What was answered until now may come again."""
        self.number += 1
        self.last = reason
        structlog.get_logger().debug("simulation.repetition_allowed", reason=reason)
        self.counts[reason] += 1


class Ledger:
    """What one handler has. Each call raises :class:`Violation` for what must not happen.

    ``once``: the destination stores its position with its data, so nothing comes twice.
    """

    def __init__(self, name: str, expected: Expected, reasons: Reasons, *, once: bool) -> None:
        self.name = name
        self.once = once
        self.applied: list[int] = []
        """In the order in which the destination took them, with repetitions."""
        self.repeated = 0
        self._expected = expected
        self._reasons = reasons
        self._taken: set[int] = set()
        self._answered: dict[int, int] = {}
        """By change, the number of reasons when the handler returned."""
        self._aside: set[int] = set()
        self._excused: set[int] = set()
        self._refused: set[int] = set()
        self._last_of: dict[Document, int] = {}
        self._last = -1

    def apply(self, numbers: Iterable[int]) -> None:
        """The destination takes the changes."""
        for number in numbers:
            self._order(number)
            if number in self._taken:
                self._again(number)
            if self.once and number <= self._last:
                self._fail(f"got {self._name(number)} after {self._name(self._last)}")
            self._last = number
            self._taken.add(number)
            self.applied.append(number)
            document = self._expected.document(number)
            if document is not None:
                self._last_of[document] = number

    def answered(self, numbers: Iterable[int]) -> None:
        """The call returned: from now on they may come again only for a new reason."""
        for number in numbers:
            self._answered[number] = self._reasons.number

    def refuse(self, number: int) -> None:
        """The destination will never take the change: others need not wait for its dead letter."""
        self._refused.add(number)

    def set_aside(self, number: int) -> None:
        """The change is a dead letter, which counts as handled.

        Only those of its document must be handled before it: the destination has nothing of it.
        """
        document = self._expected.document(number)
        before = self._expected.before(number) if document is not None else ()
        same = [each for each in before if self._expected.document(each) == document]
        early = [each for each in same if not self._done(each)]
        if early:
            self._fail(f"set {self._name(number)} aside before {self.describe(early)}")
        self._aside.add(number)

    def moved(self, time: Timestamp) -> None:
        """An operator chose this position: it counts more than that of the destination, and what is
        before it and not handled is skipped."""
        self._last = -1
        self._last_of.clear()
        self.skip(None, Timestamp(time.time, time.inc - 1))

    def skip(self, since: Timestamp | None, until: Timestamp) -> None:
        """What is not handled and happened between these times may be missing."""
        for number in self.missing():
            time = self._expected.time(number)
            if time <= until and (since is None or since <= time):
                self._excused.add(number)

    def missing(self) -> list[int]:
        """What it does not have yet."""
        return [each for each in self._expected.changes if not self._done(each)]

    def describe(self, numbers: Sequence[int], most: int = 5) -> str:
        """Changes for people."""
        names = ", ".join(self._expected.name(each) for each in numbers[:most])
        return f"{names} and {len(numbers) - most} more" if len(numbers) > most else names

    def _done(self, number: int) -> bool:
        return number in self._taken or number in self._aside or number in self._excused

    def _order(self, number: int) -> None:
        document = self._expected.document(number)
        early = [
            each
            for each in self._expected.before(number)
            if not self._done(each) and not self._is_passed(each, document)
        ]
        if early:
            self._fail(f"got {self._name(number)} before {self.describe(early)}")
        if document is None or (last := self._last_of.get(document)) is None or number <= last:
            return
        skipped = set(self._expected.between(document, last, number)) - self._aside - self._excused
        if skipped:
            self._fail(
                f"got {self._name(number)} after {self._name(last)}, without "
                f"{self.describe(sorted(skipped))} in between"
            )

    def _is_passed(self, number: int, document: Document | None) -> bool:
        """Whether another document's change, or DDL, need not wait for it: it is refused, or queues
        after one of its document that is."""
        of = self._expected.document(number)
        if of is None:
            return number in self._refused
        held = self._expected.between(of, -1, number + 1)
        return of != document and any(each in self._refused for each in held)

    def _again(self, number: int) -> None:
        self.repeated += 1
        if self._answered.get(number, -1) == self._reasons.number:
            self._fail(
                f"got {self._name(number)} again, which it had answered, and nothing has happened "
                f"since then (the last reason was: {self._reasons.last or 'none'})"
            )

    def _name(self, number: int) -> str:
        return self._expected.name(number)

    def _fail(self, message: str) -> None:
        raise Violation(f"handler {self.name!r} {message}")
