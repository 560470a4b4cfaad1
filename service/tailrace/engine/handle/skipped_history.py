"""Records changes that a scope skips, before anything after them is handled."""

import structlog

from tailrace.engine.held_lease import HeldLease
from tailrace.engine.ports import CheckpointStore
from tailrace.engine.status.lag import iso
from tailrace.model.gap import Gap


async def record(gap: Gap, store: CheckpointStore, lease: HeldLease | None) -> None:
    """Stores the gap, and logs it. The handlers are told next."""
    if lease is not None:
        lease.require()
    await store.record_gap(gap)
    structlog.get_logger().bind(scope=gap.scope).error(
        "history.skipped", since=iso(gap.since), until=iso(gap.until), reason=gap.reason
    )
