"""What the methods of a handler class get: a batch of events, and the scope that it belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from prometheus_client import CollectorRegistry

from tailrace.envelope import Message, messages
from tailrace.event import ChangeEvent
from tailrace.event.last_change import last_changes


@dataclass(frozen=True, slots=True)
class ScopeContext:
    """The scope that a handler works for, and who works.

    ``epoch`` grows with each process that takes the scope over: a destination that stores the
    greatest one and refuses smaller ones is safe from a process that was replaced. ``attempt``
    counts the calls of ``begin`` since the last batch was stored, from 1. ``log`` is a structlog
    logger bound to scope and handler. Metrics made with ``registry`` (of prometheus_client) appear
    in ``/metrics``; each object has its own, so make each metric once in it. ``cluster`` is the
    identity of the cluster that the scope follows. ``dead_letter_keys`` are the ``event.key`` of
    documents with unresolved dead letters of this handler, as known now: the destination may have
    an older state of them, and their rows of a snapshot do not reach it.
    """

    name: str
    epoch: int
    attempt: int
    log: Any
    registry: CollectorRegistry
    cluster: str = ""
    dead_letter_keys: Collection[bytes | None] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


class Batch(Sequence[ChangeEvent]):
    """Consecutive events of one scope. It never holds DDL, and never rows beside changes.

    ``position`` is the text to store in the same transaction as the data, and ``former`` the text
    that the destination must still have then (``None``: none yet). Both are ``None`` for a class
    without ``begin``.
    """

    __slots__ = ("_events", "former", "position", "scope")

    def __init__(
        self,
        events: Sequence[ChangeEvent],
        scope: ScopeContext,
        position: str | None = None,
        former: str | None = None,
    ) -> None:
        self._events = events
        self.scope = scope
        self.position = position
        self.former = former

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[ChangeEvent]:
        return iter(self._events)

    @overload
    def __getitem__(self, index: int) -> ChangeEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ChangeEvent]: ...
    def __getitem__(self, index: int | slice) -> ChangeEvent | Sequence[ChangeEvent]:
        return self._events[index]

    def latest(self) -> list[ChangeEvent]:
        """The last event of each document, in the stream's order.

        An event whose document key a pipeline removed counts as a document of its own. The delete
        of a document that moved to another shard in the same transaction is not its last event.
        """
        return [self._events[change.index] for change in last_changes(self._events)]

    def messages(self, envelope: str = "native", *, canonical: bool = False) -> list[Message]:
        """A message for each event, at the same index: key, value and headers.

        ``envelope``: ``native``, ``debezium``, ``cloudevents`` or ``document``. They are made once,
        however many handlers of the scope ask for them. May take milliseconds: handlers with large
        batches call it in a thread. Raises ``ValueError`` for another envelope.
        """
        return messages(self._events, self.scope.name, envelope, canonical=canonical)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} events of {self.scope}>"
