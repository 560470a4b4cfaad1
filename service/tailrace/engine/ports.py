"""What the engine asks of the packages beside it: a store of positions, and handlers."""

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

    A failure that may pass is :class:`tailrace.errors.CheckpointError`; a record that cannot be
    read is :class:`tailrace.errors.CheckpointCorrupt`, never a silent ``None``.
    """

    async def load(self, scope: str) -> Checkpoint | None:
        """The scope's checkpoint, or ``None`` if there never was one."""

    async def save(self, checkpoint: Checkpoint) -> None:
        """Stores it as a whole, so that a power cut does not take it back.

        Raises :class:`tailrace.errors.CheckpointFenced` unless its ``order`` is greater than that
        of what is stored. One that fails may have been stored: the next needs a greater order.
        """

    async def claim(self, scope: str, epoch: int) -> Checkpoint:
        """Raises the epoch of what is stored, and returns that, in one step; its sequence is 0.

        Where there is nothing, a checkpoint without a position is made. What its former owner saves
        from then on is refused. Raises :class:`tailrace.errors.CheckpointFenced` unless the epoch
        is greater than the stored one: a claim of unknown outcome needs a greater one.
        """

    async def list(self) -> Sequence[Checkpoint]:
        """Every stored checkpoint, by scope name."""

    async def reset(self, scope: str) -> bool:
        """Forgets the scope's checkpoint, not its gaps; says whether there was one."""

    async def record_gap(self, gap: Gap) -> None:
        """Adds it durably; nothing ever changes or removes it. Identical gaps are stored once."""

    async def gaps(self, scope: str) -> Sequence[Gap]:
        """Every gap of the scope, the one recorded first at the front."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose work this is; ``epoch`` grows with each process that takes the scope over."""

    scope: str
    cluster: str
    fingerprint: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """How what a handler has taken in becomes durable: as a whole, when ``call`` returns.

    Called after ``events`` events, ``bytes`` raw bytes, or ``seconds`` from the first. Until then
    the handler has ``held()`` bytes of it in memory, which count as bytes in flight.
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
    once, for different documents. ``batch_size`` and ``batch_bytes`` (0: no bound) bound what one
    call of ``on_events`` gets, for which it may wait ``linger_seconds``; ``raw``: as BSON bytes;
    ``whole_transactions``: those of a transaction in one call, whatever its size.

    ``takes_scope``: the call has a second argument, the scope's name; ``takes_epoch``: one more,
    the epoch of its :class:`Owner`. ``position`` says after which event the destination stands:
    that and earlier ones do not come again. ``skipped`` is told of a gap. With a ``commit`` the
    calls of ``on_events`` only take events in. Such a handler has a
    ``position``: a failure ends the run, and what was taken in is void once that is asked for.
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
        """The one of the two that is set."""
        call = self.on_event or self.on_events
        assert call is not None  # noqa: S101 - for the type checker
        return call

    def payload(self, events: Sequence[ChangeEvent]) -> list[Any]:
        """What a call of ``on_events`` gets: a list of its own, which it may change."""
        return list(self.each(events))

    def each(self, events: Sequence[ChangeEvent]) -> Iterator[Any]:
        """What a call that only takes events in gets: one after another."""
        if not self.raw:
            return iter(events)
        return events.raw() if isinstance(events, Events) else (event.raw for event in events)

    def of_scope(self, owner: Owner) -> Handler:
        """The handler as one scope calls it: its calls take neither a scope's name nor an epoch."""
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
    """Keeps letters in the order in which they came, until each is replayed or discarded.

    Another process (the command line) may resolve letters while this one adds some. Failures are
    :class:`tailrace.errors.DeadLetterError`.
    """

    async def add(self, letter: DeadLetter) -> None:
        """Stores it durably behind all others; the same unresolved letter is stored once."""

    def held(self, scope: str, handler: str) -> Collection[bytes | None]:
        """Keys that have unresolved letters, as last known here; the set follows what is learnt."""

    async def refresh(self) -> None:
        """Learns what is stored; called before a scope's first event, for :meth:`held`."""

    async def holds(self, scope: str, handler: str, key: bytes | None) -> bool:
        """Whether the key has unresolved letters now, by what is stored."""

    async def count(self) -> Mapping[tuple[str, str], int]:
        """How many unresolved letters there are now by scope and handler, by what is stored."""

    async def letters(
        self, scope: str | None = None, handler: str | None = None
    ) -> Sequence[DeadLetter]:
        """Unresolved letters, in the order in which they came."""

    async def resolve(self, letter: DeadLetter, how: How) -> bool:
        """Writes durably what became of a letter; says whether it was still waiting."""


class CommandRunner(Protocol):
    """What the stores in MongoDB ask of a driver."""

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        """Runs one command on the primary and returns the reply as plain Python types.

        Raises :class:`tailrace.errors.CommandFailed` for a reply that is not ``ok`` (errors inside
        one that is are the caller's), :class:`tailrace.errors.ConnectionFailed` for no reply.
        """
