"""Saves where handlers without a position begin, if that is now: before anything can make it later.

A pause, a destination that is down, or a crash before the first reply of the stream must not move
"now" behind changes that are written meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace

from bson.timestamp import Timestamp

from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.plan.row_source import KnownSnapshots, RowSource
from tailrace.engine.plan.scope_plan import Runtime
from tailrace.engine.ports import RunIdentity
from tailrace.model import Checkpoint, Position, PositionKind
from tailrace.model.subscription import Subscription


async def begin_now(
    handlers: Sequence[str],
    rows: RowSource,
    claim: CheckpointClaim,
    identity: RunIdentity,
    runtime: Runtime,
    generation: int,
) -> Checkpoint | None:
    """Their first checkpoint, saved; ``None`` if the time is unknown.

    The time is that of the first call for this claim. ``generation``: the last one that wants
    their snapshot. Raises :class:`tailrace.errors.CheckpointError` and
    :class:`tailrace.errors.DriverError`.
    """
    if any(name not in claim.began for name in handlers):
        server_time = await runtime.now()
        if server_time is None:
            return None
        for name in handlers:
            claim.began.setdefault(name, server_time)
    now = min(claim.began[name] for name in handlers)
    # mongod, change_stream_helpers.cpp: a stream without a start begins one tick later, too.
    time = Timestamp(now.time, now.inc + 1)
    snapshot = rows.begin(KnownSnapshots(None, fresh=True, generation=generation))
    position = Position(PositionKind.IDLE, None, None, time, snapshot=snapshot, started=time)
    first = Subscription(position, identity.fingerprint)
    new = {name: replace(first, observed_generation=claim.observed_by(name)) for name in handlers}
    return await claim.save(runtime.store, identity, new)
