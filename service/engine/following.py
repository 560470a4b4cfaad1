"""What a watcher is made of: how its scope is followed, and what it shares with the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from service.engine.backoff import BackoffPolicy
from service.engine.budget import ByteBudget
from service.engine.ports import CheckpointStore, DeadLetterStore
from service.engine.router import Routed
from service.engine.server_clock import ServerClock
from service.model import Scope, StartPoint
from service.model.cluster import ClusterIdentity
from service.model.start import NOW
from service.observe.metrics import Metrics
from service.stream import ChangeStreamOptions, Driver


@dataclass(frozen=True, slots=True)
class Following:
    """How a scope is followed.

    ``start`` counts only where no checkpoint exists. ``lanes`` bounds the concurrency of each
    handler, ``checkpoint_seconds`` is the time between two saves.
    """

    scope: Scope
    options: ChangeStreamOptions
    routed: Sequence[Routed]
    backoff: BackoffPolicy
    start: StartPoint = NOW
    stop_on_invalidate: bool = False
    skip_lost_history: bool = False
    lanes: int = 64
    checkpoint_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all watchers of a process share."""

    driver: Driver
    store: CheckpointStore
    cluster: ClusterIdentity
    budget: ByteBudget
    metrics: Metrics
    letters: DeadLetterStore | None = None
    """Without it handlers have one attempt, and a failure starts the scope again."""
    clock: ServerClock = field(default_factory=ServerClock)
