"""A checkpoint: how far each handler of a scope has handled its changes, and who wrote it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from tailrace.model.position import Position, PositionKind, earliest
from tailrace.model.record_codec import INLINE, instance
from tailrace.model.start import StartPoint
from tailrace.model.stored_record import StoredRecord
from tailrace.model.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Checkpoint(StoredRecord):
    """Everything that each handler needs to continue exactly after its last handled change.

    ``epoch`` counts owners and ``sequence`` an owner's writes: stores refuse a write that is not
    newer in this order. ``position``, ``fingerprint``, ``observed_generation`` and ``halted`` are
    those of the handler that stands last, as in :class:`Subscription`, and of all ``handlers`` that
    stand there with it; without names, of every handler. ``apart``: the handlers that stand
    elsewhere. ``damaged``: the records in ``apart`` that cannot be read, as they are stored.
    ``came_after``: by handler that has no readable position, the last generation that any handler
    had taken when that was seen. ``replays``: the last replay to each handler, by the name of its
    subscription (:func:`replay_to`).
    """

    NAME: ClassVar = "checkpoint"
    REMEDY: ClassVar = (
        "remove it with 'tailrace checkpoints reset', then choose a position with 'tailrace scopes "
        "seek'"
    )

    scope: str
    position: Position = field(metadata=INLINE)
    cluster: str
    fingerprint: str
    epoch: int
    sequence: int
    saved_at: datetime
    observed_generation: int = 0
    halted: str = ""
    handlers: tuple[str, ...] = ()
    apart: Mapping[str, Subscription] = field(default_factory=dict)
    damaged: Mapping[str, Any] = field(default_factory=dict)
    came_after: Mapping[str, int] = field(default_factory=dict)
    replays: Mapping[str, Subscription] = field(default_factory=dict)

    @classmethod
    def nowhere(cls, scope: str) -> Checkpoint:
        """The record of a scope without a position. The owner sets epoch and sequence."""
        position = Position(PositionKind.RESET, None, None, None)
        return cls(scope, position, "", "", 0, 0, datetime.now(UTC))

    @property
    def last(self) -> Subscription:
        """The subscription that stands last."""
        return Subscription(self.position, self.fingerprint, self.observed_generation, self.halted)

    def of(self, handler: str) -> Subscription | None:
        """How far this handler is; ``None`` if it has never had a position."""
        apart = self.replays.get(handler) or self.apart.get(handler)
        if apart is not None:
            return apart
        known = not self.handlers or handler in self.handlers
        return self.last if known and handler not in self.damaged and not self.is_reset else None

    def alone(self, handler: str) -> Checkpoint | None:
        """The same of this handler only; ``None`` if it has never had a position."""
        if (known := self.of(handler)) is None:
            return None
        return replace(
            self,
            position=known.position,
            fingerprint=known.fingerprint,
            observed_generation=known.observed_generation,
            halted=known.halted,
            handlers=(handler,),
            apart={},
            replays={},
        )

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """All of them, by the name of the handler."""
        return {**dict.fromkeys(self.handlers, self.last), **self.apart}

    def with_subscriptions(
        self, changed: Mapping[str, Subscription], followed: Collection[str] = ()
    ) -> Checkpoint:
        """The same with other subscriptions for these handlers.

        ``followed``: the scope's handlers now (empty: all). One that was removed does not stand
        last, but keeps its position.
        """
        replays = {name: each for name, each in changed.items() if each.replay is not None}
        if replays:
            replayed = replace(self, replays={**self.replays, **replays})
            rest = {name: each for name, each in changed.items() if name not in replays}
            return replayed.with_subscriptions(rest, followed) if rest else replayed
        of_all = {**self.subscriptions, **changed}
        now = [each for name, each in of_all.items() if name in followed] or list(of_all.values())
        if not now:
            return self
        last = earliest(now, lambda each: each.position)
        return replace(
            self,
            position=last.position,
            fingerprint=last.fingerprint,
            observed_generation=last.observed_generation,
            halted=last.halted,
            handlers=tuple(sorted(name for name, each in of_all.items() if each.is_same(last))),
            apart={name: each for name, each in of_all.items() if not each.is_same(last)},
            damaged={name: raw for name, raw in self.damaged.items() if name not in changed},
        )

    def to_document(self) -> dict[str, Any]:
        """The record to store, with what is ``damaged`` as it was read."""
        record = super(Checkpoint, self).to_document()
        if record.pop("damaged", {}):
            record["apart"] = {**record.get("apart", {}), **self.damaged}
        return record

    @classmethod
    def from_document(cls, document: Any, *, where: str) -> Self:
        """Reads a record; what cannot be read of a single handler is ``damaged``."""
        apart = document.get("apart") if isinstance(document, Mapping) else None
        if isinstance(apart, Mapping):
            damaged = {name: record for name, record in apart.items() if not _is_readable(record)}
            document = {**document, "apart": _readable(apart), "damaged": damaged}
        replays = document.get("replays") if isinstance(document, Mapping) else None
        if isinstance(replays, Mapping):  # one that cannot be read begins once more
            document = {**document, "replays": _readable(replays)}
        return super(Checkpoint, cls).from_document(document, where=where)

    @property
    def version(self) -> tuple[int, int]:
        """The pair that a conditional write compares."""
        return self.epoch, self.sequence

    @property
    def is_reset(self) -> bool:
        """Whether it only fences: the scope starts as if it had no checkpoint."""
        return self.position.kind is PositionKind.RESET

    def check(self) -> None:
        if min(*self.version, self.observed_generation) < 0:
            raise ValueError("epoch and sequence must not be negative, nor observed_generation")
        if self.position.start_point == StartPoint() and not self.is_reset:
            raise ValueError("it holds neither a token nor a time")


def replay_to(handler: str) -> str:
    """The name of the subscription of a replay to a handler. No handler can have such a name."""
    return f"{handler} (replay)"


def _readable(records: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: record for name, record in records.items() if _is_readable(record)}


def _is_readable(record: Any) -> bool:
    """Whether it is the record of a subscription, with a position."""
    try:
        subscription = instance(Subscription, record)
    except ValueError:
        return False
    return (
        subscription.observed_generation >= 0 and subscription.position.start_point != StartPoint()
    )
