"""A snapshot's progress: the part of a checkpoint that tells which documents were handed over."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from struct import Struct

from bson.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class DocumentId:
    """The ``_id`` of a document; ``raw`` is a BSON document with only this field.

    Stores keep it as base64: Extended JSON does not preserve every value exactly.
    """

    raw: bytes

    @classmethod
    def from_text(cls, text: str) -> DocumentId:
        """Reads what :meth:`to_text` wrote; raises ``ValueError`` for anything else."""
        try:
            return cls(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise ValueError(f"is not the base64 of an _id: {error}") from error

    def to_text(self) -> str:
        """The text for a record: base64."""
        return base64.b64encode(self.raw).decode()


class SnapshotMode(StrEnum):
    """Why a snapshot is taken."""

    INITIAL = "initial"
    """The scope had no checkpoint."""
    GAP = "gap"
    """The history was lost (``on_history_lost: snapshot``)."""
    REQUESTED = "requested"


class SnapshotState(StrEnum):
    """The stage of a snapshot."""

    PLANNED = "planned"
    """The collections are not known yet: ``snapshotBegin`` was not handed over."""
    READING = "reading"
    DONE = "done"
    """``snapshotEnd`` was handed over."""
    CANCELLED = "cancelled"


class RangeState(StrEnum):
    """The stage of one range."""

    READING = "reading"
    DONE = "done"
    DROPPED = "dropped"
    """Before the end of the range, the collection was dropped or was renamed out of the scope."""
    REFUSED = "refused"
    """The collection cannot be read as of a time."""


_TELLING = (RangeState.READING, RangeState.DROPPED, RangeState.REFUSED, RangeState.DONE)
"""The state of a collection with several ranges is the first of these that any range has."""


@dataclass(frozen=True, slots=True)
class RangeProgress:
    """How far one range of a collection is: a whole collection, or the part up to ``until``.

    ``uuid`` (32 hexadecimal digits) identifies the collection; its name is as of the last chunk.
    ``estimate``: the number of its documents at the start. All documents up to ``last`` were read:
    ``scanned`` documents, of which ``documents`` were handed over. ``note`` explains an unusual
    state.
    """

    uuid: str
    database: str
    collection: str
    estimate: int = 0
    clustered: bool = False
    scanned: int = 0
    documents: int = 0
    last: DocumentId | None = None
    until: DocumentId | None = None
    state: RangeState = RangeState.READING
    note: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more of the range is read."""
        return self.state is not RangeState.READING

    @property
    def left(self) -> int:
        """About how many documents are still to be read."""
        return 0 if self.over else max(self.estimate - self.scanned, 0)

    def joined(self, other: RangeProgress) -> RangeProgress:
        """Both ranges as one, for display: without bounds, in the more telling state."""
        return replace(
            min(self, other, key=lambda each: _TELLING.index(each.state)),
            estimate=self.estimate + other.estimate,
            scanned=self.scanned + other.scanned,
            documents=self.documents + other.documents,
            last=None,
            until=None,
        )


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What an operator wants of the snapshot ``id``, as a whole.

    ``new``: it is taken, of these ``collections`` and with this ``filter``, by those who have none
    that was wanted ``since`` this generation, which is that of the first request for it.
    ``verification``: see :class:`SnapshotProgress`.
    """

    id: str
    new: bool = False
    collections: tuple[str, ...] = ()
    filter: str = ""
    paused: bool = False
    cancelled: bool = False
    verification: str = ""
    since: int = 0

    def changes(self, stored: SnapshotProgress | None) -> bool:
        """Whether it has an effect on one who has this snapshot: none on one that is over, even if
        it ended after the request, or on one that was wanted later."""
        if stored is not None and stored.id == self.id:
            return not stored.over
        later = stored is not None and stored.observed_generation >= self.since > 0
        return self.new and not later


@dataclass(frozen=True, slots=True)
class SnapshotProgress:
    """A snapshot's plan and progress.

    ``id`` is in every event of the snapshot. ``target``: what the scope follows, as
    :attr:`tailrace.model.Scope.target`. ``collections``: the chosen names (empty: all of the
    scope). ``filter`` selects documents (canonical Extended JSON; empty: all), and ``fingerprint``
    is the filter's. ``note``: why the snapshot was refused or planned again, if so. ``ranges`` are
    in the order of reading, with up to ``parallel`` of them at once. ``began`` is the cluster time
    of ``snapshotBegin``, ``time`` that of the last chunk. ``handled``: the digests of the ids of
    single rows that the handler has beyond the ranges' progress. ``observed_generation``: the
    last one of the desired state that it has applied, or has replaced. ``verification``: the id of
    the one whose listed differences are read, by their keys, and beside them only the chosen
    collections.
    """

    id: str
    mode: SnapshotMode
    state: SnapshotState = SnapshotState.PLANNED
    paused: bool = False
    target: str = ""
    collections: tuple[str, ...] = ()
    filter: str = ""
    fingerprint: str = ""
    note: str = ""
    parallel: int = 1
    ranges: Mapping[str, RangeProgress] = field(default_factory=dict)
    began: Timestamp | None = None
    time: Timestamp | None = None
    handled: frozenset[str] = frozenset()
    observed_generation: int = 0
    verification: str = ""

    @property
    def active(self) -> bool:
        """Whether the snapshot should be read now."""
        return not (self.paused or self.over)

    @property
    def documents(self) -> int:
        """How many documents were delivered, of all collections."""
        return sum(each.documents for each in self.ranges.values())

    @property
    def over(self) -> bool:
        """Whether nothing of the snapshot is left to read."""
        return self.state in (SnapshotState.DONE, SnapshotState.CANCELLED)

    @property
    def by_collection(self) -> list[RangeProgress]:
        """The progress of each collection: its ranges as one."""
        found: dict[tuple[str, ...], RangeProgress] = {}
        for each in self.ranges.values():
            key = (each.uuid,) if each.uuid else (each.database, each.collection)
            found[key] = found[key].joined(each) if key in found else each
        return list(found.values())

    def goes_with(self, other: SnapshotProgress) -> bool:
        """Whether one reader can go on with both: they have one plan, or neither has rows yet."""
        if SnapshotState.PLANNED in (self.state, other.state):
            return self.id == other.id and not (self.has_rows or other.has_rows)
        plans = [{n: one.until for n, one in each.ranges.items()} for each in (self, other)]
        return self.id == other.id and plans[0] == plans[1]

    @property
    def has_rows(self) -> bool:
        """Whether the handler has some of its rows."""
        return bool(self.handled) or any(each.scanned for each in self.ranges.values())

    def requested(self, handled: SnapshotProgress | None) -> SnapshotProgress | None:
        """The ``handled`` progress with what an operator requested here: that waits for no row."""
        if handled is None or handled.over:
            return self if self.state is SnapshotState.PLANNED else handled
        if self.id != handled.id:
            return handled
        state = self.state if self.state is SnapshotState.CANCELLED else handled.state
        observed, note = self.observed_generation, self.note
        progress = replace(handled, paused=self.paused, state=state, note=note)
        return replace(progress, observed_generation=observed)

    def with_range(self, name: str, progress: RangeProgress) -> SnapshotProgress:
        """The same with new progress for one range."""
        return replace(self, ranges={**self.ranges, name: progress})


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What a destination has of a snapshot: the rows up to the ``last`` of each range.

    ``id`` is the snapshot's. A range is read in the order of ``_id`` and has its name from the
    plan. ``ended``: the destination has ``snapshotEnd``, and so all rows. ``ranges``: the progress
    of the same ranges, if the checkpoint says what the handler has.
    """

    id: str
    last: Mapping[str, DocumentId] = field(default_factory=dict)
    ended: bool = False
    ranges: Mapping[str, RangeProgress] = field(default_factory=dict)

    @classmethod
    def up_to(cls, event: bytes) -> StoredRows | None:
        """What one event's ``_id`` (BSON) tells; ``None`` if the event is not of a snapshot."""
        if (found := _ROW.fullmatch(event)) is not None:
            last = _length(len(found[4]) + 5) + found[4] + b"\0"
            number = f"/{_number(found[3])[0]}" if found[3] else ""
            return cls(found[1].decode(), {found[2].hex() + number: DocumentId(last)})
        if (found := _BARRIER.fullmatch(event)) is not None:
            return cls(found[1].decode(), ended=found[2] == b"snapshotEnd")
        return None

    def merged(self, before: StoredRows | None) -> StoredRows:
        """Together with what the destination had before of the same snapshot."""
        if before is None or before.id != self.id:
            return self
        ended = self.ended or before.ended
        return StoredRows(self.id, {} if ended else {**before.last, **self.last}, ended)

    def without(self, of: str) -> StoredRows:
        """The same without one range."""
        last = {name: each for name, each in self.last.items() if name != of}
        ranges = {name: each for name, each in self.ranges.items() if name != of}
        return StoredRows(self.id, last, self.ended, ranges)

    def progress(self, read: SnapshotProgress) -> SnapshotProgress:
        """How far the handler is when so much is read: in some ranges it was further before."""
        further = {
            name: each
            for name, each in self.ranges.items()
            if name in read.ranges and not read.ranges[name].over
        }
        if not further or read.id != self.id:
            return read
        return replace(read, ranges={**read.ranges, **further})

    def has_last(self, other: StoredRows) -> bool:
        """Whether the one event in ``other`` is one of the last that the destination has."""
        if other.id != self.id:
            return False
        if not other.last:
            return self.ended if other.ended else not (self.last or self.ended)
        return other.last.items() <= self.last.items()


# As tailrace.event.snapshot_events makes them.
_ROW = re.compile(
    rb".{4}\x02snapshot\0.{4}([^\0]*)\0"
    rb"\x05collection\0\x10\0\0\0\x04(.{16})(?:\x10range\0(.{4}))?(._id\0.*)\0",
    re.DOTALL,
)
_BARRIER = re.compile(
    rb".{4}\x02snapshot\0.{4}([^\0]*)\0"
    rb"\x02event\0.{4}(snapshotBegin|snapshotEnd)\0\0",
    re.DOTALL,
)
_length, _number = Struct("<i").pack, Struct("<i").unpack
