"""Moves changes from streams to handlers and remembers how far they got.

A :class:`Supervisor` keeps one :class:`Watcher` per scope. A watcher runs its scope
(:mod:`tailrace.engine.run`): it reads batches and gives each slice a place on the watermark
(:mod:`tailrace.engine.read`), delivers the places through the lanes of each handler
(:mod:`tailrace.engine.handle`), and saves the watermark (:mod:`tailrace.engine.position`).
"""

from tailrace.engine.comparison import (
    ROWS_BYTES,
    Comparison,
    HeldKey,
    HeldKeys,
    HeldRows,
    ReadDocuments,
    Row,
    Suspects,
    differing_fields,
    suspects_of,
)
from tailrace.engine.handle.frames import blocking_handler
from tailrace.engine.held_lease import HeldLease
from tailrace.engine.plan.byte_budget import ByteBudget
from tailrace.engine.plan.router import Routed, routed
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import (
    CheckpointStore,
    Commit,
    DesiredStateStore,
    Handler,
    OwnPosition,
    PerBatch,
    PerEvent,
    RunIdentity,
    raw_documents,
    raw_list,
)
from tailrace.engine.scope_task import GRACE_IS_OVER, log_not_drained
from tailrace.engine.status.watcher_state import WatcherState
from tailrace.engine.supervisor import Supervisor
from tailrace.engine.watcher import Watcher
from tailrace.engine.watches import ClusterWatch, watch_desired_states, watch_letters

__all__ = [
    "GRACE_IS_OVER",
    "ROWS_BYTES",
    "ByteBudget",
    "CheckpointStore",
    "ClusterWatch",
    "Commit",
    "Comparison",
    "DesiredStateStore",
    "Handler",
    "HeldKey",
    "HeldKeys",
    "HeldLease",
    "HeldRows",
    "OwnPosition",
    "PerBatch",
    "PerEvent",
    "ReadDocuments",
    "Routed",
    "Row",
    "RunIdentity",
    "Runtime",
    "ScopePlan",
    "Supervisor",
    "Suspects",
    "Watcher",
    "WatcherState",
    "blocking_handler",
    "differing_fields",
    "log_not_drained",
    "raw_documents",
    "raw_list",
    "routed",
    "suspects_of",
    "watch_desired_states",
    "watch_letters",
]
