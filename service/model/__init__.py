"""Pure data: what the packages above hand to each other. Nothing here does I/O.

``bson`` is used for its codec alone; no module here knows a driver.
"""

from service.model.batch import Batch, Chunk
from service.model.checkpoint import Checkpoint, CheckpointKind
from service.model.event import ChangeEvent, Image, Namespace
from service.model.progress import Progress
from service.model.route import Route
from service.model.scope import Scope
from service.model.sink_position import SinkPosition
from service.model.start import StartPoint
from service.model.token import ResumeToken

__all__ = [
    "Batch",
    "ChangeEvent",
    "Checkpoint",
    "CheckpointKind",
    "Chunk",
    "Image",
    "Namespace",
    "Progress",
    "ResumeToken",
    "Route",
    "Scope",
    "SinkPosition",
    "StartPoint",
]
