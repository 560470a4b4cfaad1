"""Notes in the store why a scope is halted, for whoever asks when its process is gone."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import structlog

from tailrace.engine.checkpointer import SAVE_SECONDS, CheckpointClaim
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointError, describe
from tailrace.masking import shortened
from tailrace.model import Checkpoint

LONGEST = 2000
"""How many characters of a reason are kept."""


async def note_halt(
    store: CheckpointStore, claim: CheckpointClaim, last: Checkpoint | None, reason: str
) -> Checkpoint | None:
    """Saves the last checkpoint again, with the reason; the next save of a run removes it.

    Returns what was saved; ``None`` if nothing was: the reason is not worth another failure.
    """
    if not claim.epoch:
        return None  # the scope is not this process's
    claim.sequence += 1
    noted = replace(
        last or Checkpoint.nowhere(claim.scope),
        epoch=claim.epoch,
        sequence=claim.sequence,
        saved_at=datetime.now(UTC),
        halted=shortened(reason, LONGEST),
    )
    with anyio.move_on_after(SAVE_SECONDS, shield=True):
        try:
            await claim.save(store, noted)
            return noted
        except CheckpointError as error:
            log = structlog.get_logger().bind(scope=claim.scope)
            log.warning("halt.not_noted", error=describe(error))
    return None
