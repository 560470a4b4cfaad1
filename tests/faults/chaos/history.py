"""What was written, what was handed over, and everything that is wrong between the two.

Pure: it knows neither server nor service. The terms of the guarantee, exactly:

- The *stream's order* is that in which the changes were first handed to the handler that takes
  them in sequence. By document it must be what was written: nothing missing, nothing else.
- A *life* is one process. It begins exactly behind the checkpoint that the one before it left:
  what comes again is what lay behind that checkpoint, no more and no less. From there the
  sequence has no gap.
- Within a life the sequence may go back only where the watcher began anew (its stream failed for
  good, or its store), and never behind the checkpoint with which the life began.
- A checkpoint is never ahead of what either handler has finished, and never goes back.
- For the handler that takes documents in parallel, the same is true of each document by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A change to a document; each, deletes included, adds one to its counter."""

    operation: str
    number: int


class Arrival(NamedTuple):
    """A change as a handler got it. A delete does not say its ``number``."""

    token: str
    document: int
    operation: str
    number: int | None


class Position(NamedTuple):
    """A checkpoint as it was seen in the store."""

    epoch: int
    sequence: int
    cluster_time: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Life:
    """What one process handed to its two handlers, and what it left behind.

    ``checkpoint`` is the token of the last change before the stored position. ``starts`` says how
    often a watcher began in it, ``clean`` that it ended by itself when asked to.
    """

    sequential: Sequence[Arrival]
    parallel: Sequence[Arrival]
    checkpoint: str | None
    starts: int
    clean: bool = False


class Complaint(NamedTuple):
    """What is wrong, and in which life (0 is the first one; ``None``: in the whole)."""

    life: int | None
    text: str


@dataclass(slots=True)
class Findings:
    """The result of :func:`examine`.

    Both counts are by life, of the handler in sequence: ``repeated`` of what the life before it
    had handed over, ``restarted`` of what it had itself, before a watcher of it began anew.
    """

    complaints: list[Complaint] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    restarted: list[int] = field(default_factory=list)
    changes: int = 0
    again: int = 0
    """How many arrivals were no first ones, in all lives."""

    def of(self, life: int) -> list[str]:
        """The complaints about one life."""
        return [each.text for each in self.complaints if each.life == life]

    def add(self, texts: Iterable[str]) -> None:
        """Adds complaints about the whole."""
        self.complaints += [Complaint(None, text) for text in texts]


def examine(written: Mapping[int, Sequence[Change]], lives: Sequence[Life]) -> Findings:
    """Everything that is wrong with ``lives``, by whose end all that was written had arrived."""
    return _Examination(lives).of(written)


def regressions(seen: Iterable[Position]) -> list[str]:
    """Where a checkpoint was followed by an older one."""
    problems = []
    for before, after in pairwise(seen):
        if after[:2] < before[:2]:
            problems.append(f"the checkpoint went back from {before[:2]} to {after[:2]}")
        elif after.cluster_time < before.cluster_time:
            problems.append(
                f"the cluster time went back from {before.cluster_time} to {after.cluster_time}"
            )
    return problems


def differences(
    derived: Mapping[int, Mapping[str, Any]], expected: Mapping[int, Mapping[str, Any]]
) -> list[str]:
    """Where the collection that the events lead to is not the one that is there."""
    return [
        f"document {key}: the events lead to {derived.get(key)}, there is {expected.get(key)}"
        for key in sorted({*derived, *expected})
        if derived.get(key) != expected.get(key)
    ]


def derived(events: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The collection that change events lead to, applied one after another."""
    documents: dict[int, dict[str, Any]] = {}
    for event in events:
        key = event["documentKey"]["_id"]
        match event["operationType"]:
            case "insert" | "replace":
                documents[key] = dict(event["fullDocument"])
            case "update":
                documents.setdefault(key, {}).update(event["updateDescription"]["updatedFields"])
            case "delete":
                documents.pop(key, None)
    return documents


class _Examination:
    def __init__(self, lives: Sequence[Life]) -> None:
        self._lives = lives
        self._findings = Findings()
        self._order: dict[str, int] = {}  # by token: the place in the stream's order
        self._arrivals: list[Arrival] = []  # in that order
        self._lines: dict[int, list[int]] = defaultdict(list)  # by document: its places

    def of(self, written: Mapping[int, Sequence[Change]]) -> Findings:
        for number, life in enumerate(self._lives):
            self._take(number, life)
        self._findings.changes = len(self._arrivals)
        arrived = sum(len(life.sequential) for life in self._lives)
        self._findings.again = arrived - len(self._arrivals)
        self._compare(written)
        self._sequences()
        self._checkpoints()
        return self._findings

    def _complain(self, life: int | None, text: str) -> None:
        self._findings.complaints.append(Complaint(life, text))

    def _take(self, number: int, life: Life) -> None:
        for arrival in life.sequential:
            place = self._order.get(arrival.token)
            if place is None:
                self._order[arrival.token] = len(self._arrivals)
                self._lines[arrival.document].append(len(self._arrivals))
                self._arrivals.append(arrival)
            elif self._arrivals[place] != arrival:
                self._complain(number, f"{_name(arrival)} came again as something else than before")

    def _compare(self, written: Mapping[int, Sequence[Change]]) -> None:
        """By document: what was written, and the stream's order."""
        for document in sorted({*written, *self._lines}):
            expected = list(written.get(document, ()))
            found = [self._arrivals[place] for place in self._lines.get(document, ())]
            for change, arrival in zip(expected, found, strict=False):
                if (arrival.operation, arrival.number) not in (change, (change.operation, None)):
                    self._complain(
                        None,
                        f"document {document}: {_name(arrival)} arrived where change "
                        f"{change.number} ({change.operation}) was due: lost or out of order",
                    )
                    break
            else:
                if len(found) < len(expected):
                    missing = f"{len(expected) - len(found)} of {len(expected)} changes"
                    self._complain(None, f"document {document}: {missing} never arrived")
                elif len(found) > len(expected):
                    extra = _name(found[len(expected)])
                    self._complain(None, f"document {document}: {extra} was never written")

    def _sequences(self) -> None:
        """Life by life: where each sequence begins, and that it goes on without a gap."""
        begin, before = -1, set[int]()  # the place of the checkpoint, and those of the life before
        for number, life in enumerate(self._lives):
            walk = _Walk(life.starts - 1, begin, range(len(self._arrivals)))
            places = [self._order[arrival.token] for arrival in life.sequential]
            for text in walk.complaints(places):
                self._complain(number, f"in sequence, {text}")
            self._findings.repeated.append(len(before.intersection(places)))
            self._findings.restarted.append(len(places) - len(set(places)))
            self._parallel(number, life, begin)
            before = set(places)
            begin = self._place_of(life.checkpoint, begin)

    def _parallel(self, number: int, life: Life, begin: int) -> None:
        by_document: dict[int, list[int]] = defaultdict(list)
        for arrival in life.parallel:
            place = self._order.get(arrival.token)
            if place is None or self._arrivals[place] != arrival:
                self._complain(number, f"{_name(arrival)} reached one handler only")
            else:
                by_document[arrival.document].append(place)
        for document, places in by_document.items():
            walk = _Walk(life.starts - 1, begin, self._lines[document])
            for text in walk.complaints(places):
                self._complain(number, f"in parallel, document {document}: {text}")

    def _checkpoints(self) -> None:
        """A checkpoint is behind what both handlers have finished by then, and never goes back."""
        begin = -1
        handled: list[set[str]] = [set(), set()]
        ahead = 0  # all before this place was looked at in an earlier life
        for number, life in enumerate(self._lives):
            for known, arrivals in zip(handled, (life.sequential, life.parallel), strict=True):
                known.update(arrival.token for arrival in arrivals)
            place = self._place_of(life.checkpoint, begin)
            if life.checkpoint is not None and life.checkpoint not in self._order:
                self._complain(number, f"the checkpoint {life.checkpoint} is no change's")
            if place < begin:
                self._complain(number, f"the checkpoint went back from {begin} to {place}")
            for arrival in self._arrivals[ahead : place + 1]:
                for known, name in zip(handled, ("sequence", "parallel"), strict=True):
                    if arrival.token not in known:
                        self._complain(
                            number, f"the checkpoint is ahead of {_name(arrival)} in {name}"
                        )
            ahead = max(ahead, place + 1)
            begin = place
            done = max((self._order[a.token] for a in life.sequential), default=begin)
            if life.clean and place < done:
                self._complain(
                    number, f"a clean stop left {done - place} handled changes to come again"
                )
        for arrival in self._arrivals[ahead:]:
            if arrival.token not in handled[1]:
                self._complain(None, f"{_name(arrival)} never arrived in parallel")

    def _place_of(self, checkpoint: str | None, before: int) -> int:
        return before if checkpoint is None else self._order.get(checkpoint, before)


@dataclass(slots=True)
class _Walk:
    """The changes of one life that stand in ``line``, the places in the stream's order.

    It begins at the first one behind ``begin`` and goes from each to the next, but for
    ``restarts`` times, when it may go back, not behind ``begin``.
    """

    restarts: int
    begin: int
    line: Sequence[int]

    def complaints(self, places: Iterable[int]) -> Iterator[str]:
        due = first = bisect_right(self.line, self.begin)
        restarts = 0
        for place in places:
            at = bisect_left(self.line, place)
            if at > due:
                yield f"{at - due} changes are skipped before change {at + 1}"
            elif at < first:
                yield f"change {at + 1} came again, from before the checkpoint"
            elif at < due:
                restarts += 1
                if restarts > self.restarts:
                    yield f"it went back to change {at + 1} from {due} without a restart"
            due = at + 1


def _name(arrival: Arrival) -> str:
    number = "" if arrival.number is None else f" {arrival.number}"
    return f"{arrival.operation}{number} of document {arrival.document}"
