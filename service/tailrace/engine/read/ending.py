"""Why a run ends."""

from enum import Enum


class Ending(Enum):
    """Why a run ended without an error."""

    STOPPED = "stopped"
    INVALIDATED = "invalidated"
    PAUSED = "paused"
    ARRIVED = "arrived"
    """The stream has come to where its handler goes on in the shared one, or to the end of a
    replay."""
