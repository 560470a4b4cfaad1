"""Finds every difference between what was written and what was handed over.

The guarantee, stated exactly, for each handler separately:

- *Nothing lost*: each written change arrives unaltered, and nothing else arrives.
- *In order*: each change follows its predecessor, of the same document, or of the whole stream if
  the handler gets the stream's order. A process starts at the latest with the first change that had
  not come before it. It goes back only where its watcher restarted.
- *No needless repetition*: a change comes again only if the process that had it was killed (or its
  watcher restarted), and only if it is after the checkpoint. After a clean stop no change comes
  again. To a handler that owns its position, no change ever comes again.
- *The checkpoint* never passes a change that a handler has not received, and never goes back.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.faults.chaos.history import Arrival, Change, Process, Recipient


class Kind(Enum):
    """The kind of a complaint."""

    LOST = "lost"
    ORDER = "out of order"
    AGAIN = "again without need"
    CHECKPOINT = "checkpoint"
    CONTENT = "content"


class Complaint(NamedTuple):
    """What is wrong, and in which process (from 0; ``None``: not in a single process)."""

    process: int | None
    kind: Kind
    text: str


@dataclass(slots=True)
class Tally:
    """The changes of one handler: received, lost, out of order, and repeated."""

    changes: int = 0
    lost: int = 0
    disordered: int = 0
    again: int = 0


@dataclass(slots=True)
class Account:
    """The result of :func:`examine`.

    ``changes`` counts the changes that arrived at any handler, ``lost`` those that arrived at none.
    """

    complaints: list[Complaint] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    changes: int = 0
    lost: int = 0

    def add(self, kind: Kind, texts: Iterable[str], process: int | None = None) -> None:
        self.complaints += [Complaint(process, kind, text) for text in texts]


def examine(
    written: Mapping[int, Sequence[Change]],
    processes: Sequence[Process],
    recipients: Sequence[Recipient],
) -> Account:
    """Finds everything that is wrong. All written changes must have had time to arrive."""
    account = Account()
    stream = _Stream(processes, account)
    _compare(written, stream, account)
    followed = [_Followed(each, stream, processes, account) for each in recipients]
    begin = -1
    for number, process in enumerate(processes):
        for each in followed:
            each.take(number, begin)
        end = stream.behind(process.checkpoint, begin)
        if end < begin:
            text = f"the checkpoint went back from change {begin + 1} to {end + 1}"
            account.add(Kind.CHECKPOINT, [text], number)
        for each in followed:
            each.end(number, begin, end)
        begin = end
    for each in followed:
        each.close()
    return account


class _Stream:
    """All changes that arrived at any handler, in token order; a *place* is an index into them."""

    def __init__(self, processes: Sequence[Process], account: Account) -> None:
        first: dict[str, Arrival] = {}
        for number, process in enumerate(processes):
            for name, arrivals in process.arrivals.items():
                for arrival in arrivals:
                    if first.setdefault(arrival.token, arrival) != arrival:
                        other = _name(first[arrival.token])
                        text = f"{name}: {_name(arrival)} was {other} elsewhere or before"
                        account.add(Kind.CONTENT, [text], number)
        self.tokens = sorted(first)
        self.arrivals = [first[token] for token in self.tokens]
        self.place = {token: place for place, token in enumerate(self.tokens)}
        self.by_document: dict[int, list[int]] = defaultdict(list)
        self.index: list[int] = []
        """By place: which of its document's changes it is."""
        for place, arrival in enumerate(self.arrivals):
            self.index.append(len(self.by_document[arrival.document]))
            self.by_document[arrival.document].append(place)
        account.changes = len(self.arrivals)

    def behind(self, checkpoint: str | None, before: int) -> int:
        """The place of the last change that the checkpoint covers."""
        return before if checkpoint is None else bisect_right(self.tokens, checkpoint) - 1


def _compare(written: Mapping[int, Sequence[Change]], stream: _Stream, account: Account) -> None:
    """Compares what was written to each document with the stream's order."""
    for document in sorted({*written, *stream.by_document}):
        found = [stream.arrivals[place] for place in stream.by_document.get(document, ())]
        at = 0
        for change in written.get(document, ()):
            alike = (change, (change.operation, None))
            if at < len(found) and (found[at].operation, found[at].number) in alike:
                at += 1
            else:
                text = f"{change.operation} {change.number} of document {document} never arrived"
                account.add(Kind.LOST, [text])
                account.lost += 1
        texts = [f"{_name(arrival)} was never written, or not there" for arrival in found[at:]]
        account.add(Kind.CONTENT, texts)


class _Followed:
    """One handler, followed through all processes."""

    def __init__(
        self,
        recipient: Recipient,
        stream: _Stream,
        processes: Sequence[Process],
        account: Account,
    ) -> None:
        self._recipient = recipient
        self._stream = stream
        self._processes = processes
        self._account = account
        self._tally = account.tallies[recipient.name] = Tally()
        self._had: dict[int, int] = {}  # by place: the last process that handed it over
        self._reached: dict[int, int] = defaultdict(int)  # by line: the first yet to come

    def take(self, number: int, begin: int) -> None:
        """Checks what process ``number`` handed over; it started after place ``begin``."""
        process = self._processes[number]
        due: dict[int, int] = {}
        backwards: dict[int, int] = defaultdict(int)
        for arrival in process.arrivals.get(self._recipient.name, ()):
            place = self._stream.place[arrival.token]
            line, at = 0, place
            if not self._recipient.sequence:
                line, at = arrival.document, self._stream.index[place]
            latest = due.get(line, self._reached[line])
            if at > latest:
                self._order(number, f"{at - latest} changes are skipped before {_name(arrival)}")
            elif at < latest and line in due:
                backwards[line] += 1
                if backwards[line] >= process.starts:
                    self._order(number, f"it went back to {_name(arrival)} without a restart")
            due[line] = at + 1
            self._reached[line] = max(self._reached[line], at + 1)
            if place in self._had:
                self._tally.again += 1
                self._again(number, place, begin)
            self._had[place] = number

    def end(self, number: int, begin: int, end: int) -> None:
        """Checks the checkpoint that process ``number`` left."""
        texts = [
            f"{self._recipient.name}: the checkpoint passed {_name(self._stream.arrivals[place])}"
            for place in range(begin + 1, end + 1)
            if place not in self._had
        ]
        self._account.add(Kind.CHECKPOINT, texts, number)

    def close(self) -> None:
        """Finds the changes that never came."""
        self._tally.changes = len(self._had)
        missing = [place for place in range(len(self._stream.arrivals)) if place not in self._had]
        self._tally.lost = len(missing) + self._account.lost
        for place in missing:
            self._complain(None, Kind.LOST, f"{self._name(place)} never arrived")

    def _again(self, number: int, place: int, begin: int) -> None:
        last = self._had[place]
        needless = last != number and self._processes[last].clean
        why = "in the same process" if last == number else "after a kill"
        if needless:
            why = "after a clean stop"
        if place <= begin:
            needless, why = True, f"{why}, from before the checkpoint"
        if needless or self._recipient.owns:
            self._complain(number, Kind.AGAIN, f"{self._name(place)} came again {why}")

    def _order(self, number: int, text: str) -> None:
        self._tally.disordered += 1
        self._complain(number, Kind.ORDER, text)

    def _name(self, place: int) -> str:
        return _name(self._stream.arrivals[place])

    def _complain(self, number: int | None, kind: Kind, text: str) -> None:
        self._account.add(kind, [f"{self._recipient.name}: {text}"], number)


def _name(arrival: Arrival) -> str:
    number = "" if arrival.number is None else f" {arrival.number}"
    return f"{arrival.operation}{number} of document {arrival.document}"
