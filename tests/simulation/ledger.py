"""What each handler must have, and what it must not get: the model of the promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from bson.timestamp import Timestamp

from tailrace.event import ChangeEvent
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END, of_snapshot
from tailrace.model.replay import Replay
from tests.simulation.expected import Document, Expected, Violation
from tests.simulation.replayed import Replays


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
        self.counts[reason] += 1
        structlog.get_logger().debug("simulation.repetition_allowed", reason=reason)


@dataclass(eq=False)
class _Snapshot:
    """What a handler has of a snapshot: ``began`` is the time of its first barrier."""

    began: Timestamp
    named: set[Document] = field(default_factory=set)
    ended: bool = False


class Ledger:
    """What one handler's destination has. ``once``: it stores its position with the data."""

    def __init__(self, name: str, expected: Expected, reasons: Reasons, *, once: bool) -> None:
        self.name = name
        self.once = once
        self.applied: list[str] = []
        """In the order in which the destination took them, with repetitions."""
        self.repeated = self.rows = self.snapshots = 0
        self.replays = Replays(expected)
        self._expected = expected
        self._reasons = reasons
        self._taken: set[int] = set()
        self._answered: dict[object, int] = {}
        """By change, or row, the number of reasons when the handler returned."""
        self._calls: dict[int, int] = {}
        """By change that came again in a replay and is not answered, the number of reasons then:
        with a new reason the handler's own course may bring it, too."""
        self._aside: set[int] = set()
        self._excused: set[int] = set()
        self._passed: set[int] = set()
        """Changes that a later row of their document has."""
        self._lost: set[int] = set()
        """Changes of a recorded gap: a repetition that it has cut off does not go on with them."""
        self._refused: set[int] = set()
        self._refused_rows: set[tuple[str, Document]] = set()
        """By snapshot."""
        self._last_of: dict[Document, int] = {}
        self._last = self._before_move = -1
        """Where the destination stands; and stood when an operator moved it back: once it is there
        again, nothing in it tells whether it has moved."""
        self._snapshots: dict[str, _Snapshot] = {}
        self._row_of: dict[Document, tuple[Timestamp, str]] = {}
        """By document, the time of its last row, and the snapshot."""

    # --- what the destination takes -------------------------------------------------------------

    def apply(self, events: Sequence[ChangeEvent]) -> None:
        """The destination takes the events."""
        for event in events:
            if of_snapshot(event.raw):
                self._take_of_snapshot(event)
            else:
                self._take(self._expected.number(event))

    def named(self, events: Sequence[ChangeEvent]) -> list[object]:
        """The changes' numbers, and the rows, for people."""
        return [
            f"{each.operation_type} {each.document_key} at {each.cluster_time}"
            if of_snapshot(each.raw)
            else self._expected.number(each)
            for each in events
        ]

    def _take(self, number: int) -> None:
        is_repetition = self._comes_in_replay(number)
        self.replays.note(number)
        if is_repetition:
            self.applied.append(f"{number} again")
            return
        self._order(number)
        if number in self._taken:
            self._again(number)
        else:  # docs/operations.md: "the position of the handler does not move" by a replay
            self._answered.pop(number, None)
        if self.once and number <= self._last != self._before_move:
            self._fail(f"got {self._name(number)} after {self._name(self._last)}")
        self._last = number
        self._taken.add(number)
        self.applied.append(str(number))
        document = self._expected.document(number)
        if document is not None:
            self._last_of[document] = number
            time, row = self._row_of.get(document, (None, ""))
            is_older = time is not None and self._expected.time(number) <= time
            if is_older and self._answered.get((row, document)) == self._reasons.number:
                self._fail(f"got {self._name(number)} after a row as of {time}")

    def _comes_in_replay(self, number: int) -> bool:
        """Whether it comes in a replay, as far as can be told: the handler has it, or it is not its
        turn."""
        if not self.replays.has(number):
            return False
        if not self._done(number):
            try:
                self._order(number)
            except Violation:
                return True
            self.replays.first(number)
            return False
        document = self._expected.document(number)
        if self._answered.get(number, -1) != self._reasons.number:
            if self._calls.get(number) != self._reasons.number:
                self.replays.first(number)  # the handler's own course may bring it again, too
        else:
            before = [
                each
                for each in self._expected.before(number)
                if each not in self._aside and not self._is_passed(each, document)
            ]
            lacking = self.replays.lacking(number, before)
            if not self.replays.again(number):
                return False
            # docs/operations.md, of a replay: "the handler's attempts, dead letters, outages and
            # metrics are the same". So until it has an answer, this call is repeated, too.
            del self._answered[number]
            self._calls[number] = self._reasons.number
            if lacking:
                self._fail(f"got {self._name(number)} again before {self.describe(lacking)}")
        if document is not None:
            self._last_of[document] = max(number, self._last_of.get(document, -1))
        return True

    def replayed(self, replay: Replay, *, failed: bool) -> None:
        """How far a replay is, as the process that makes it has stored."""
        if missing := self.replays.ended(replay, failed=failed):
            self._fail(f"got a replay without {self.describe(missing)}")

    def _take_of_snapshot(self, event: ChangeEvent) -> None:
        assert event.cluster_time is not None
        snapshot, time = str(event.id["snapshot"]), event.cluster_time
        self.applied.append(f"{event.operation_type} {event.document_key}")
        if event.operation_type == SNAPSHOT_BEGIN:
            self._begin_snapshot(event)
            return
        known = self._snapshots.get(snapshot)
        if known is None:
            self._fail(f"got {event!r} before the begin of its snapshot")
            return
        if event.operation_type == SNAPSHOT_END:
            self._end(known, snapshot)
            return
        self.rows += 1
        document = self._expected.of_row(event)
        if document in known.named:
            self._again((snapshot, document))
        known.named.add(document)
        self._order_row(document, event)
        for number in self._expected.until(document, time):
            self._passed.add(number)
            self._last_of[document] = number
        self._row_of[document] = time, snapshot

    def _begin_snapshot(self, event: ChangeEvent) -> None:
        assert event.cluster_time is not None
        self._snapshots.setdefault(str(event.id["snapshot"]), _Snapshot(event.cluster_time))

    def _order_row(self, document: Document, event: ChangeEvent) -> None:
        """What happened before the row was read must be handled before it."""
        assert event.cluster_time is not None
        before = list(self._expected.until(document, event.cluster_time))
        barrier = self._expected.barrier(event.cluster_time)
        early = [
            n for n in [*before, *([barrier] if barrier is not None else [])] if not self._done(n)
        ]
        early = [n for n in early if n not in self._refused and not self._is_passed(n, document)]
        if early:
            self._fail(f"got {event!r} before {self.describe(early)}")

    def _end(self, snapshot: _Snapshot, name: str) -> None:
        """Everything that was there at the begin, and is unchanged, has come, or is refused."""
        if snapshot.ended:
            return
        snapshot.ended, self.snapshots = True, self.snapshots + 1
        refused = {document for of, document in self._refused_rows if of == name}
        missing = set(self._expected.existing(snapshot.began)) - snapshot.named - refused
        if missing:
            some = sorted(f"{key!r} of {uuid.hex()}" for uuid, key in missing)[:5]
            self._fail(f"got the end of a snapshot without {', '.join(some)}")

    def answered(self, events: Sequence[ChangeEvent]) -> None:
        """The call returned: from now on they may come again only for a new reason."""
        for event in events:
            if not of_snapshot(event.raw):
                number = self._expected.number(event)
                self._answered[number] = self._reasons.number
                self._calls.pop(number, None)
            elif event.document_key is not None:
                document = self._expected.of_row(event)
                self._answered[str(event.id["snapshot"]), document] = self._reasons.number

    # --- what it will not take ------------------------------------------------------------------

    def refuse(self, event: ChangeEvent) -> None:
        """The destination will never take it: others need not wait for its dead letter.

        docs/handlers.md: "They become dead letters without another attempt, and the other events of
        the batch are written" - DDL and the end of a snapshot, too.
        """
        if not of_snapshot(event.raw):
            self._refused.add(self._expected.number(event))
        elif event.operation_type == SNAPSHOT_BEGIN:
            self._begin_snapshot(event)
        elif event.document_key is not None:
            row = str(event.id["snapshot"]), self._expected.of_row(event)
            self._refused_rows.add(row)

    def ignore(self, event: ChangeEvent) -> None:
        """It was called for DDL, of which it stores nothing: that may come again."""
        if of_snapshot(event.raw):
            self._take_of_snapshot(event)
            return
        number = self._expected.number(event)
        self._order(number)
        self._excused.add(number)

    def set_aside(self, event: ChangeEvent) -> None:
        """It is a dead letter, which counts as handled.

        Only those of its document must be handled before it: the destination has nothing of it.
        """
        if of_snapshot(event.raw):
            if event.operation_type == SNAPSHOT_BEGIN:
                self._begin_snapshot(event)
            known = self._snapshots.get(str(event.id["snapshot"]))
            if event.document_key is not None and known is not None:
                row = self._expected.of_row(event)
                known.named.add(row)
                self._passed.update(self._expected.until(row, event.cluster_time))
            return
        number = self._expected.number(event)
        document = self._expected.document(number)
        before = self._expected.before(number) if document is not None else ()
        same = [each for each in before if self._expected.document(each) == document]
        early = [each for each in same if not self._done(each)]
        self.replays.note(number)
        if early and not self.replays.has(number):
            self._fail(f"set {self._name(number)} aside before {self.describe(early)}")
        self._aside.add(number)

    def begin(self, time: Timestamp | None) -> None:
        """It begins with what happens after this time."""
        if time is not None:
            self.skip(None, time)

    def moved(self, time: Timestamp) -> None:
        """An operator chose this position: it counts more than that of the destination, and what is
        before it and not handled is skipped."""
        self._before_move, self._last = self._last, -1
        self._last_of.clear()
        self._lost.clear()
        self.skip(None, Timestamp(time.time, time.inc - 1))

    def back_up(self) -> Callable[..., None]:
        """Copies what the destination has; returns what sets it back to that.

        It gets the changes that it lacks then again, but not the rows of snapshots. One that is
        ``emptied`` goes on where it was.
        """
        taken, passed, last = set(self._taken), set(self._passed), self._last
        last_of, row_of = dict(self._last_of), dict(self._row_of)
        named = {id: set(snapshot.named) for id, snapshot in self._snapshots.items()}

        def restore(*, emptied: bool) -> None:
            if emptied:
                self._excused |= self._taken | self._passed
            self._taken, self._passed = set(taken), set(passed)
            self._last, self._last_of, self._row_of = last, dict(last_of), dict(row_of)
            for id, snapshot in self._snapshots.items():
                snapshot.named, snapshot.ended = set(named.get(id, ())), True

        return restore

    def skip(self, since: Timestamp | None, until: Timestamp) -> None:
        """What happened between these times may be missing, also of a repetition.

        docs/delivery.md: "changes are lost to every consumer"; "the gap is stored with both times".
        """
        for number in self._expected.changes:
            time = self._expected.time(number)
            if time <= until and (since is None or since <= time):
                self._lost.add(number)
                if not self._done(number):
                    self._excused.add(number)

    def missing(self) -> list[int]:
        """What it does not have yet."""
        return [each for each in self._expected.changes if not self._done(each)]

    def describe(self, numbers: Sequence[int], most: int = 5) -> str:
        """Changes for people."""
        names = ", ".join(self._expected.name(each) for each in numbers[:most])
        return f"{names} and {len(numbers) - most} more" if len(numbers) > most else names

    def _done(self, number: int) -> bool:
        return (
            number in self._taken
            or number in self._aside
            or number in self._excused
            or number in self._passed
        )

    # --- the order ------------------------------------------------------------------------------

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
        between = set(self._expected.between(document, last, number))
        skipped = between - self._aside - self._excused - self._passed - self._lost
        if self._expected.barrier_between(document, last, number):
            # A dead letter of a collection's former name holds nothing of its new one.
            first = min(self._refused & between, default=number)
            skipped = {each for each in skipped if each < first}
        if skipped:
            self._fail(
                f"got {self._name(number)} after {self._name(last)}, without "
                f"{self.describe(sorted(skipped))} in between"
            )

    def _is_passed(self, number: int, document: Document | None) -> bool:
        """Whether another document's change, or DDL, need not wait for it: it is refused, or queues
        after one that is.

        docs/outcomes.md: "later events of its document wait behind it". The letters of a key in a
        collection are one queue, also if another collection has the name now.
        """
        of = self._expected.document(number)
        if of is None:
            return number in self._refused
        held = self._expected.queue(number)
        return of != document and any(each in self._refused for each in held)

    def _again(self, what: int | tuple[str, Document]) -> None:
        self.repeated += 1
        if self._answered.get(what, -1) == self._reasons.number:
            name = self._name(what) if isinstance(what, int) else f"the row {what[1]}"
            self._fail(
                f"got {name} again, which it had answered, and nothing has happened "
                f"since then (the last reason was: {self._reasons.last or 'none'})"
            )

    def _name(self, number: int) -> str:
        return self._expected.name(number)

    def _fail(self, message: str) -> None:
        raise Violation(f"handler {self.name!r} {message}")
