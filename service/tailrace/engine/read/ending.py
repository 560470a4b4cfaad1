"""Why a run ends."""

from enum import Enum


class Ending(Enum):
    """Why a run ended without an error."""

    STOPPED = "stopped"
    INVALIDATED = "invalidated"
    PAUSED = "paused"
    JOINED = "joined"
    """The handler goes on in the shared stream."""
