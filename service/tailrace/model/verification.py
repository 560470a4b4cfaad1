"""A verification: how far the rows of one handler were compared with the source, and the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from bson.timestamp import Timestamp

from tailrace.model.record_codec import INLINE, WrittenOnce
from tailrace.model.snapshot import DocumentId
from tailrace.model.stored_record import StoredRecord


class VerificationState(StrEnum):
    """The stage of a verification."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Phase(StrEnum):
    """What is read of one collection."""

    SOURCE = "source"
    """Its documents, each with its row."""
    DESTINATION = "destination"
    """The keys of its rows: some may have no document."""
    DONE = "done"
    DROPPED = "dropped"
    """It was dropped meanwhile, or renamed out of the scope."""
    REFUSED = "refused"
    """It cannot be read as of a time."""


class Kind(StrEnum):
    """How a row and its document differ."""

    DIFFERENT = "different"
    MISSING = "missing"
    """The document has no row."""
    TOO_MANY = "too_many"
    """The row has no document."""


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """What is compared: the documents of these ``collections`` (empty: all of the scope) that match
    the ``filter`` (canonical Extended JSON), or only these ``keys`` (Extended JSON); of them the
    share ``sample``. At most so many ``documents_per_second`` (0: no limit). ``values``: the
    differing values are told, too. ``from_beginning``: topics may be read."""

    collections: tuple[str, ...] = ()
    filter: str = ""
    keys: tuple[str, ...] = ()
    sample: float = 1.0
    documents_per_second: float = 0.0
    values: bool = False
    from_beginning: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all documents of the scope are compared."""
        return not (self.collections or self.filter or self.keys) and self.sample >= 1


@dataclass(frozen=True, slots=True)
class Counts:
    """Documents by the result of their comparison. ``compared`` is the sum of the others.

    ``in_flux``: those that changed at every look. ``set_aside``: those with unresolved dead
    letters, or of which the destination refuses a row.
    """

    compared: int = 0
    equal: int = 0
    different: int = 0
    missing: int = 0
    too_many: int = 0
    in_flux: int = 0
    set_aside: int = 0

    def plus(self, **more: int) -> Counts:
        """With so many ``more`` by name, which are compared."""
        changed = {name: getattr(self, name) + count for name, count in more.items()}
        return replace(self, compared=self.compared + sum(more.values()), **changed)

    def added(self, other: Counts) -> Counts:
        """The sum of both."""
        names = [each.name for each in fields(self)]
        return Counts(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def differences(self) -> int:
        """How many documents differ from their rows."""
        return self.different + self.missing + self.too_many


@dataclass(frozen=True, slots=True)
class Difference(WrittenOnce):
    """A row that differs from its document. ``key``: its ``_id`` as canonical Extended JSON.

    ``fields``: those that differ. ``since``: a cluster time at which it differed. ``id``: the
    ``_id``; ``None`` if no document can have this key. ``expected`` and ``stored``: the values of
    the ``fields`` as text, if they are told.
    """

    collection: str
    key: str
    kind: Kind
    fields: tuple[str, ...]
    since: Timestamp
    id: DocumentId | None = None
    expected: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedCollection:
    """How far one collection is. ``estimate``: the number of its documents at the start.

    Its documents up to ``last`` were compared; in the phase ``destination``, its rows up to the
    ``cursor``. ``open``: those of them that are looked at again.
    """

    uuid: str
    database: str
    collection: str
    estimate: int = 0
    clustered: bool = False
    phase: Phase = Phase.SOURCE
    counts: Counts = field(default_factory=Counts, metadata=INLINE)
    last: DocumentId | None = None
    cursor: str = ""
    open: tuple[DocumentId, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """``database.collection``."""
        return f"{self.database}.{self.collection}"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is compared."""
        return self.phase in (Phase.DONE, Phase.DROPPED, Phase.REFUSED)


SCHEDULE = "verify.every"
"""Who has asked for a round: the key of the configuration."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What all verifications of the whole scope together say of a handler.

    ``since``: when the first one began. ``ended``: when the last round has ended, or the last one
    that was complete. ``compared``: documents, in all. ``through``: the cluster time at which the
    last complete one began, which found so many ``differences``.
    """

    since: datetime | None = None
    ended: datetime | None = None
    compared: int = 0
    through: Timestamp | None = None
    differences: int = 0


@dataclass(frozen=True, slots=True)
class Verification(StoredRecord):
    """One verification of the rows of a ``handler``. ``epoch``: of the process that wrote this.

    ``by`` asked for it at ``began``, which was the cluster time ``at``. ``collections``, by name,
    are in the order of comparison. ``keys``: the first differences. ``letters``: the ids of dead
    letters of documents that are set aside. ``reason``: why it has ended without a result.
    ``proof``: of this one and those before. ``repair``: the id of the snapshot that brings what
    differs, if one was asked for.
    """

    NAME: ClassVar = "verification"
    REMEDY: ClassVar = "begin another one with 'tailrace verify'"

    scope: str
    handler: str
    id: str
    epoch: int
    request: VerificationRequest
    by: str
    began: datetime
    state: VerificationState = VerificationState.RUNNING
    ended: datetime | None = None
    collections: Mapping[str, ComparedCollection] = field(default_factory=dict)
    keys: tuple[Difference, ...] = ()
    letters: tuple[str, ...] = ()
    reason: str = ""
    repair: str = ""
    at: Timestamp | None = None
    proof: Proof = field(default_factory=Proof)

    @property
    def is_round(self) -> bool:
        """Whether it has begun by itself."""
        return self.by == SCHEDULE

    @property
    def is_over(self) -> bool:
        """Whether nothing more is compared."""
        return self.state not in (VerificationState.RUNNING, VerificationState.PAUSED)

    @property
    def counts(self) -> Counts:
        """Those of all collections."""
        total = Counts()
        for each in self.collections.values():
            total = total.added(each.counts)
        return total

    def over(self, state: VerificationState, reason: str, ended: datetime) -> Verification:
        """The same when it has ended."""
        proof, done = self.proof, state is VerificationState.DONE
        if self.request.is_whole and (done or self.is_round):
            proof = replace(proof, ended=ended)
        if self.request.is_whole and done:
            proof = replace(proof, through=self.at, differences=self.counts.differences)
        return replace(self, state=state, reason=reason, ended=ended, proof=proof)

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The names of the collections of which not all differences are listed."""
        listed = Counter(difference.collection for difference in self.keys)
        return tuple(
            name for name, of in self.collections.items() if listed[name] < of.counts.differences
        )

    def with_collection(self, collection: ComparedCollection) -> Verification:
        """The same with another state of one collection."""
        return replace(self, collections={**self.collections, collection.name: collection})
