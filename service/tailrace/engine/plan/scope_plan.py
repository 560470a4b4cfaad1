"""How one scope is followed, and what all scopes of a process share."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from bson.timestamp import Timestamp

from tailrace.engine.held_lease import ObservedLease
from tailrace.engine.plan.byte_budget import ByteBudget
from tailrace.engine.plan.loop_share import LoopShare
from tailrace.engine.plan.router import Routed
from tailrace.engine.plan.row_source import FindKeys, NoRows, RowSource
from tailrace.engine.plan.source_history import HasChange, trusted
from tailrace.engine.ports import CheckpointStore, DeadLetterStore, DesiredStateStore
from tailrace.model import Scope, StartPoint
from tailrace.model.cluster import ClusterIdentity
from tailrace.model.failure_policy import Backoff
from tailrace.model.start import NOW
from tailrace.observe.metrics import Metrics
from tailrace.stream import ChangeStreamOptions, Driver, ServerClock


@dataclass(frozen=True, slots=True)
class ScopePlan:
    """How a scope is followed. ``start`` is used only if there is no checkpoint.

    ``lanes`` bounds the concurrency of handlers. ``rows`` reads the existing documents for those
    that begin as the scope does. ``catch_up_streams``: how many further streams there may be, for
    handlers that are behind.
    """

    scope: Scope
    options: ChangeStreamOptions
    routed: Sequence[Routed]
    backoff: Backoff
    start: StartPoint = NOW
    stop_on_invalidate: bool = False
    skip_lost_history: bool = False
    lanes: int = 64
    checkpoint_seconds: float = 1.0
    rows: RowSource = field(default_factory=NoRows)
    catch_up_streams: int = 2


async def unknown() -> Timestamp | None:
    """The time of a server that does not tell it."""
    return None


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all watchers of a process share."""

    driver: Driver
    store: CheckpointStore
    letters: DeadLetterStore
    desired_states: DesiredStateStore
    cluster: ClusterIdentity
    budget: ByteBudget
    metrics: Metrics
    clock: ServerClock = field(default_factory=ServerClock)
    share: LoopShare = field(default_factory=LoopShare)
    has_change: HasChange = trusted
    now: Callable[[], Awaitable[Timestamp | None]] = unknown
    """The server's time; ``None`` if it does not tell."""
    lease: Callable[[str], ObservedLease | None] = lambda scope: None
    """What is known of a scope's lease, where processes share the scopes."""
    keys: FindKeys | None = None
