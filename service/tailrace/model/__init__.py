"""Plain data that the packages above pass to each other. Nothing here does I/O."""

from tailrace.model.checkpoint import Checkpoint
from tailrace.model.position import Position, PositionKind
from tailrace.model.progress import Progress
from tailrace.model.route import Route
from tailrace.model.scope import Scope
from tailrace.model.sink_position import SinkPosition
from tailrace.model.snapshot import SnapshotProgress
from tailrace.model.start import StartPoint
from tailrace.model.token import ResumeToken

__all__ = [
    "Checkpoint",
    "Position",
    "PositionKind",
    "Progress",
    "ResumeToken",
    "Route",
    "Scope",
    "SinkPosition",
    "SnapshotProgress",
    "StartPoint",
]
