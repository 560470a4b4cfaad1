"""Notes in the store why handlers are halted, for whoever asks when their process is gone."""

from collections.abc import Sequence

import anyio
import structlog

from tailrace.engine.checkpoint_claim import CheckpointClaim
from tailrace.engine.checkpointer import SAVE_SECONDS
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointError, describe
from tailrace.masking import shortened
from tailrace.model import Checkpoint

LONGEST = 2000
"""How many characters of a reason are kept."""


async def note_halt(
    store: CheckpointStore, claim: CheckpointClaim, handlers: Sequence[str], reason: str
) -> Checkpoint | None:
    """Saves the last checkpoint again, with the reason; the next save of a run removes it.

    Returns what was saved; ``None`` if nothing was: the reason is not worth another failure.
    """
    with anyio.move_on_after(SAVE_SECONDS, shield=True):
        try:
            return await claim.note_halt(store, handlers, shortened(reason, LONGEST))
        except CheckpointError as error:
            log = structlog.get_logger().bind(scope=claim.scope)
            log.warning("halt.not_noted", error=describe(error))
    return None
