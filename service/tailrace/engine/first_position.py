"""Saves where a scope without a position begins, if that is now: before anything can make it later.

A pause, a destination that is down, or a crash before the first reply of the stream must not move
"now" behind changes that are written meanwhile.
"""

from bson.timestamp import Timestamp

from tailrace.engine.checkpointer import CheckpointClaim
from tailrace.engine.plan.scope_plan import Runtime, ScopePlan
from tailrace.engine.ports import RunIdentity
from tailrace.model import Checkpoint, Position, PositionKind
from tailrace.model.start import NOW


async def begin_now(
    plan: ScopePlan, claim: CheckpointClaim, identity: RunIdentity, runtime: Runtime, asked: int
) -> Checkpoint | None:
    """The scope's first checkpoint, saved; ``None`` if it begins elsewhere, or the time is unknown.

    The time is that of the first call for this claim. ``asked``: the number of the last order for
    the scope's snapshot. Raises
    :class:`tailrace.errors.CheckpointError` and :class:`tailrace.errors.DriverError`.
    """
    if plan.start != NOW:
        return None
    if claim.began is None:
        claim.began = await runtime.now()
    if (now := claim.began) is None:
        return None
    # mongod, change_stream_helpers.cpp: a stream without a start begins one tick later, too.
    time = Timestamp(now.time, now.inc + 1)
    snapshot = plan.rows.begin(None, fresh=True, gap=False, rows={}, asked=asked)
    position = Position(PositionKind.IDLE, None, None, time, snapshot=snapshot, started=time)
    first = claim.next(identity, position)
    await claim.save(runtime.store, first)
    return first
