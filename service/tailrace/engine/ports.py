"""The engine's interfaces to the stores, the handlers and the drivers' commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from tailrace.engine.comparison import Comparison
from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.event.field_protection import FieldProtection
from tailrace.model import Checkpoint, SinkPosition
from tailrace.model.dead_letter import (
    DeadLetter,
    DiscardedLetter,
    How,
    LetterHead,
    LetterQueue,
)
from tailrace.model.desired_state import DesiredState, DesiredStateTable
from tailrace.model.failure_policy import FailurePolicy
from tailrace.model.gap import Gap


class CheckpointStore(Protocol):
    """Remembers one checkpoint per scope, and every gap. No method may block the event loop.

    A temporary failure raises :class:`tailrace.errors.CheckpointError`. An unreadable record raises
    :class:`tailrace.errors.CheckpointCorrupt`; it never becomes a silent ``None``.
    """

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint, or ``None`` if there never was one."""

    async def save(self, checkpoint: Checkpoint) -> None:
        """Stores the whole checkpoint, so that it survives a power cut.

        Raises :class:`tailrace.errors.CheckpointFenced` unless its ``version`` is greater than the
        stored one. A failed save may have been stored: the next one needs a greater version.
        """

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        """Raises the stored checkpoint's epoch and returns it with sequence 0, in one atomic step.

        Creates a checkpoint without a position if none is stored. From then on, saves by the former
        claim are refused. Raises :class:`tailrace.errors.CheckpointFenced` unless the epoch is
        greater than the stored one: after a claim of unknown outcome, claim a greater epoch.
        """

    async def list(self) -> Sequence[Checkpoint]:
        """Every stored checkpoint, by scope name."""

    async def reset(self, scope: str) -> bool:
        """Deletes the scope's checkpoint, not its gaps; returns True if there was a checkpoint."""

    async def record_gap(self, gap: Gap) -> None:
        """Adds a gap durably and for good. Identical gaps are stored once."""

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """Every gap of the scope, in the order of recording."""


class DesiredStateStore(Protocol):
    """Keeps the desired state of each scope, and where scopes were before.

    Any process may write it. Failures are those of :class:`CheckpointStore`.
    """

    async def load(self, scope: str) -> DesiredState | None:
        """That of the scope, or ``None`` if there never was one."""

    async def list(self) -> DesiredStateTable:
        """That of every scope. A record that cannot be read hides no other."""

    async def write(self, desired: DesiredState) -> bool:
        """Stores it durably if the last one has the generation before, or there is none.

        Returns whether the store has it now: a write whose outcome is not known may be repeated.
        """

    async def note(self, former: Checkpoint) -> None:
        """Keeps a position of the past. Of its scope it keeps recent ones, older ones that are ever
        further apart, and those that a seek left.
        """

    async def positions(self, scope: str) -> Sequence[Checkpoint]:
        """The positions of the past that are kept, the latest first, without unreadable ones."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Whose run of a scope calls a handler. ``epoch`` grows with each process that takes over.
    ``observed_generation``: the last one whose position this handler has taken.
    ``dead_letter_keys``: those of documents with unresolved dead letters of it.
    """

    scope: str
    cluster: str
    fingerprint: str
    epoch: int
    observed_generation: int = 0
    dead_letter_keys: Collection[bytes | None] = field(default=(), compare=False, repr=False)


Call = Callable[[Any, RunIdentity], Awaitable[Any]]
"""Returns when what it got is handled for good, and raises otherwise."""


def event_list(events: Sequence[ChangeEvent]) -> list[ChangeEvent]:
    """The events as a list of the handler's own, which it may change."""
    return list(events)


def raw_documents(events: Sequence[ChangeEvent]) -> Iterator[bytes]:
    """The BSON of each event, copied on demand."""
    return events.raw() if isinstance(events, Events) else (event.raw for event in events)


def raw_list(events: Sequence[ChangeEvent]) -> list[bytes]:
    """The BSON of each event, as a list of the handler's own."""
    return list(raw_documents(events))


@dataclass(frozen=True, slots=True)
class PerEvent:
    """One event a call: in order per document, at most ``concurrency`` documents at once."""

    call: Call
    concurrency: int = 64


@dataclass(frozen=True, slots=True)
class PerBatch:
    """Consecutive events a call, in the stream's order.

    With a ``concurrency`` of more than 1, so many calls may run at once: each document's events
    come in order, but a call no longer has consecutive events.

    A call gets the ``payload`` of at most ``events`` events and ``bytes`` bytes (0: no bound), and
    may wait ``linger_seconds`` for more. ``whole_transactions``: a transaction is passed in one
    call, whatever its size. With ``on_ddl``, a call never gets DDL: ``on_ddl`` gets each such
    event alone.
    """

    call: Call
    payload: Callable[[Sequence[ChangeEvent]], Any] = event_list
    events: int = 1000
    bytes: int = 0
    linger_seconds: float = 0.0
    whole_transactions: bool = False
    on_ddl: Call | None = None
    concurrency: int = 1


def called_with(calls: PerEvent | PerBatch, events: Sequence[ChangeEvent]) -> tuple[Call, Any]:
    """What to call for these events, and with what."""
    if isinstance(calls, PerEvent):
        return calls.call, events[0]
    if calls.on_ddl is not None and events[0].is_ddl:
        return calls.on_ddl, events[0]
    return calls.call, calls.payload(events)


@dataclass(frozen=True, slots=True)
class OwnPosition:
    """The position that a destination stores together with its data.

    ``load`` returns the last event that the destination has: this event and earlier ones do not
    come again. It is called at the start of a run and after a failed call. ``skipped`` is told
    about gaps.
    """

    load: Callable[[RunIdentity], Awaitable[SinkPosition | None]]
    skipped: Callable[[RunIdentity, Gap], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Makes the events that a handler has accepted durable: all of them, when ``call`` returns.

    Called after ``events`` events, after ``bytes`` raw bytes, or ``seconds`` after the first event,
    and before an ``on_ddl``. Until then the handler keeps ``held()`` bytes in memory, which count
    as bytes in flight; without ``held``, as many as it has accepted.
    """

    call: Callable[[RunIdentity], Awaitable[Any]]
    events: int
    bytes: int
    seconds: float
    held: Callable[[RunIdentity], int] | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """A destination, opened, or still being opened: then ``ready`` raises what its calls raise.

    With a ``commit``, calls only accept events; after a failure these come again: from its own
    ``position``, or else the checkpoint. ``comparison`` compares its rows with the source: with
    ``is_log`` what a log amounts to, read whole; ``from_beginning`` what others' messages do, if
    asked for. ``protection`` changes events first. ``columns``: those made of fields, by table.
    """

    name: str
    calls: PerEvent | PerBatch
    position: OwnPosition | None = None
    commit: Commit | None = None
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    ready: Callable[[RunIdentity], Awaitable[None]] | None = None
    comparison: Callable[[RunIdentity], AbstractAsyncContextManager[Comparison]] | None = None
    is_log: bool = False
    from_beginning: bool = False
    protection: FieldProtection | None = None
    columns: Callable[[], Mapping[str, Sequence[str]]] | None = None

    @property
    def whole_transactions(self) -> bool:
        """Whether transactions are passed whole."""
        return isinstance(self.calls, PerBatch) and self.calls.whole_transactions


class DeadLetterStore(Protocol):
    """Keeps dead letters in the order of arrival, until each is replayed or discarded.

    Another process (the command line) may resolve them while this one adds some. Failures are
    :class:`tailrace.errors.DeadLetterError`.
    """

    async def claim(self, scope: str, epoch: int) -> None:
        """From now on refuses what an earlier epoch adds, and reads the store for :meth:`held`.

        Called before a scope's first event, after its checkpoint was claimed with this epoch.
        Raises :class:`tailrace.errors.CheckpointFenced` if a greater epoch has claimed the scope.
        """

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        """Stores a dead letter durably after all others; the same unresolved letter is stored once.

        The write itself stores nothing if a greater epoch has claimed the scope, even if the
        server executes it late; then this raises :class:`tailrace.errors.CheckpointFenced`.
        """

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys with unresolved letters, as last known here; later knowledge updates the set."""

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        """Whether the key has unresolved dead letters in the store now."""

    async def count(self) -> Mapping[tuple[str, str], int]:
        """The number of unresolved dead letters in the store now, by scope and handler."""

    async def heads(
        self,
        scope: str | None = None,
        handler: str | None = None,
        *,
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LetterHead]:
        """At most ``limit`` unresolved dead letters after that ``arrival``, without their events.

        Raises ``ValueError`` for an ``after`` that is no arrival.
        """

    async def queue(self, queue: LetterQueue) -> Sequence[LetterHead]:
        """The unresolved dead letters of a document, in the order of arrival."""

    async def read(self, head: LetterHead) -> DeadLetter | None:
        """The dead letter with its event; ``None`` if it does not wait any more.

        Raises :class:`tailrace.model.dead_letter.LetterUnreadable` if its record is damaged.
        """

    async def letters(
        self,
        scope: str | None = None,
        handler: str | None = None,
        is_key: Callable[[bytes | None], bool] = lambda key: True,
    ) -> Sequence[DeadLetter]:
        """The unresolved letters with such a key and their events, in the order of arrival: for few
        of them."""

    async def discarded(self, scope: str, handler: str) -> Mapping[bytes | None, DiscardedLetter]:
        """By key, the last dead letter that was discarded, as far as the store still has it."""

    async def resolve(self, letter: DeadLetter | LetterHead, how: How) -> bool:
        """Records durably how a letter was resolved; returns True if it was still unresolved."""
