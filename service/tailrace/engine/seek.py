"""Takes the position of an operator's order as the checkpoint, between two runs of a scope."""

from collections.abc import Sequence
from dataclasses import replace

import structlog
from bson.timestamp import Timestamp

from tailrace.engine.checkpointer import CheckpointClaim, as_former
from tailrace.engine.plan.scope_plan import Runtime
from tailrace.engine.ports import RunIdentity
from tailrace.model import Checkpoint, Position
from tailrace.model.gap import SET_ASIDE, Gap
from tailrace.model.order import Order
from tailrace.model.position import CHOSEN


async def seek(
    order: Order,
    before: Checkpoint | None,
    claim: CheckpointClaim,
    identity: RunIdentity,
    runtime: Runtime,
) -> Checkpoint:
    """Saves the order's position as the checkpoint, in place of ``before``; returns it.

    First it notes the position that is replaced, and the gap if changes are skipped that no handler
    has. After a crash in between, both are stored again, as the same records. Once the checkpoint
    is saved, the order is obeyed. Raises :class:`tailrace.errors.CheckpointError`.
    """
    assert order.seek is not None  # noqa: S101 - the caller has looked
    if before is not None:
        await runtime.orders.note(as_former(before))
        reached = furthest(before, await runtime.orders.positions(claim.scope))
        if (gap := _gap(order, reached, order.seek)) is not None:
            await runtime.store.record_gap(gap)
    at, here = order.seek.cluster_time, before.position if before is not None else None
    position = replace(
        order.seek,
        sink_digests={CHOSEN: ""},
        beyond={},
        snapshot=here.snapshot if here is not None else None,
        started=_started(before, order.seek),
        reread=here.reread_from(at, order.at) if here is not None else {},
    )
    after = claim.next(identity, position, fingerprint=order.fingerprint, obeyed=order.sought)
    await claim.save(runtime.store, after)
    claim.obeyed = order.sought
    structlog.get_logger().info(
        "scope.sought",
        scope=claim.scope,
        by=order.by,
        **{"from": before and str(before.position.start_point)},
        to=str(after.position.start_point),
    )
    return after


def furthest(now: Checkpoint, former: Sequence[Checkpoint]) -> Position:
    """The latest position of a scope, as far as they are kept: what is not after it is no gap."""
    known = [each.position for each in former if each.position.cluster_time is not None]
    if now.position.cluster_time is None:
        return now.position
    return max([now.position, *known], key=lambda each: each.cluster_time or Timestamp(0, 0))


def _gap(order: Order, reached: Position, after: Position) -> Gap | None:
    """The changes that the scope skips, as of the order; ``None`` if it skips none."""
    since, until = reached.cluster_time, after.cluster_time
    if order.set_aside:
        reason = f"{order.by} set aside the {order.set_aside}"
        return Gap(order.scope, after.token, until, until, reason, SET_ASIDE, order.at)
    if since is None or until is None or until <= since:
        return None
    reason = f"{order.by} moved the scope forward"
    return Gap(order.scope, reached.token, since, until, reason, "seek", order.at)


def _started(before: Checkpoint | None, after: Position) -> Timestamp | None:
    """From when on changes have come, or come now: a scope that is moved keeps what it has had."""
    times = [before.position.started if before is not None else None, after.cluster_time]
    return min((each for each in times if each is not None), default=None)
