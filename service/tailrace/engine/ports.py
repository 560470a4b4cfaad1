"""The engine's interfaces to the stores, the handlers and the drivers' commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from tailrace.event import ChangeEvent
from tailrace.event.batch import Events
from tailrace.model import Checkpoint, SinkPosition
from tailrace.model.dead_letter import DeadLetter, How
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

        Raises :class:`tailrace.errors.CheckpointFenced` unless its ``order`` is greater than the
        stored one. A failed save may have been stored: the next one needs a greater order.
        """

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        """Raises the stored checkpoint's epoch and returns it with sequence 0, in one atomic step.

        Creates a checkpoint without a position if none is stored. From then on, saves by the former
        owner are refused. Raises :class:`tailrace.errors.CheckpointFenced` unless the epoch is
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


@dataclass(frozen=True, slots=True)
class Owner:
    """Who works on a scope. ``epoch`` grows with each process that takes the scope over."""

    scope: str
    cluster: str
    fingerprint: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Makes the events that a handler has accepted durable: all of them, when ``call`` returns.

    Called after ``events`` events, after ``bytes`` raw bytes, or ``seconds`` after the first event.
    Until then the handler keeps ``held()`` bytes in memory, which count as bytes in flight.
    """

    call: Callable[..., Awaitable[None]]
    held: Callable[..., int]
    events: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Handler:
    """A destination, opened and ready.

    Exactly one of ``on_event`` and ``on_events`` is set. Both return when the events are handled
    for good, and raise otherwise. ``concurrency`` bounds how many calls of ``on_event`` run at
    once, for different documents. ``batch_size`` and ``batch_bytes`` (0: no bound) bound one call
    of ``on_events``, which may wait ``linger_seconds`` for more events. ``raw``: events are passed
    as BSON bytes. ``whole_transactions``: a transaction is passed in one call, whatever its size.

    ``takes_scope``: the call has a second argument, the scope's name; ``takes_epoch``: one more,
    the epoch of its :class:`Owner`. ``position`` returns the last event that the destination has:
    this event and earlier ones do not come again. ``skipped`` is told about gaps. With a
    ``commit``, calls of ``on_events`` only accept events. Such a handler has a ``position``: a
    failure ends the run, and the next call of ``position`` voids the events not yet committed.
    """

    name: str
    on_event: Callable[..., Awaitable[Any]] | None = None
    on_events: Callable[..., Awaitable[Any]] | None = None
    concurrency: int = 64
    batch_size: int = 1000
    batch_bytes: int = 0
    linger_seconds: float = 0.0
    raw: bool = False
    takes_scope: bool = False
    takes_epoch: bool = False
    position: Callable[[Owner], Awaitable[SinkPosition | None]] | None = None
    skipped: Callable[[Owner, Gap], Awaitable[None]] | None = None
    whole_transactions: bool = False
    commit: Commit | None = None
    failure: FailurePolicy = field(default_factory=FailurePolicy)

    @property
    def call(self) -> Callable[..., Awaitable[Any]]:
        """``on_event`` or ``on_events``, whichever is set."""
        call = self.on_event or self.on_events
        assert call is not None  # noqa: S101 - for the type checker
        return call

    def payload(self, events: Sequence[ChangeEvent]) -> list[Any]:
        """The argument of a call of ``on_events``: a list of its own, which it may change."""
        return list(self.each(events))

    def each(self, events: Sequence[ChangeEvent]) -> Iterator[Any]:
        """The argument of a call that only accepts events: an iterator."""
        if not self.raw:
            return iter(events)
        return events.raw() if isinstance(events, Events) else (event.raw for event in events)

    def of_scope(self, owner: Owner) -> Handler:
        """The handler for one scope: scope name and epoch are bound where its calls take them."""
        if not (self.takes_scope or self.takes_epoch):
            return self
        call, commit = self.call, self.commit
        more: tuple[Any, ...] = (owner.scope,) if self.takes_scope else ()
        more += (owner.epoch,) if self.takes_epoch else ()

        def scoped(payload: Any) -> Awaitable[Any]:
            return call(payload, *more)

        if commit is not None:
            held = partial(commit.held, *more)
            commit = replace(commit, call=partial(commit.call, *more), held=held)
        single, several = (scoped, None) if self.on_event else (None, scoped)
        return replace(
            self,
            on_event=single,
            on_events=several,
            commit=commit,
            takes_scope=False,
            takes_epoch=False,
        )


class DeadLetterStore(Protocol):
    """Keeps letters in the order of arrival, until each is replayed or discarded.

    Another process (the command line) may resolve letters while this one adds some. Failures are
    :class:`tailrace.errors.DeadLetterError`.
    """

    async def add(self, letter: DeadLetter) -> None:
        """Stores a letter durably after all others; the same unresolved letter is stored once."""

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys with unresolved letters, as last known here; later knowledge updates the set."""

    async def refresh(self) -> None:
        """Reads the store for :meth:`held`; called before a scope's first event."""

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        """Whether the key has unresolved letters in the store now."""

    async def count(self) -> Mapping[tuple[str, str], int]:
        """The number of unresolved letters in the store now, by scope and handler."""

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> Sequence[DeadLetter]:
        """Unresolved letters, in the order of arrival."""

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Records durably how a letter was resolved; returns True if it was still unresolved."""


class CommandRunner(Protocol):
    """The part of a driver that the MongoDB stores use."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one command on the primary and returns the reply as plain Python types.

        Raises :class:`tailrace.errors.CommandFailed` for a reply that is not ``ok`` (the caller
        checks an ``ok`` reply for errors), :class:`tailrace.errors.ConnectionFailed` for no reply.
        """
