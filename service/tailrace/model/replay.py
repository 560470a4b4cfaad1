"""A replay: the changes of a span of time come again to one handler."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from bson.timestamp import Timestamp

from tailrace.model.record_codec import INLINE


class ReplayState(StrEnum):
    """What became of a replay. One that has failed is :attr:`RUNNING`, and its subscription halted:
    see :attr:`tailrace.model.subscription.Subscription.halted`."""

    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What an operator wants to come again: the changes from ``since`` up to ``until``.

    Only those of ``collections``, each ``name`` or ``database.name``, and of the documents with
    these ``keys``, each an ``_id`` as Extended JSON; of all, where there are none.
    """

    since: Timestamp
    until: Timestamp
    collections: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """``generation``: that of the desired state that asked for it. ``handled``: how many changes
    the handler has."""

    request: ReplayRequest = field(metadata=INLINE)
    generation: int
    by: str
    state: ReplayState = ReplayState.RUNNING
    handled: int = 0
