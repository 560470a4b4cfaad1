"""One codec for an event: its layout in BSON, what it says, and what it becomes."""

from tailrace.event.batch import Batch, Chunk
from tailrace.event.change_event import ChangeEvent, Image, Namespace

__all__ = ["Batch", "ChangeEvent", "Chunk", "Image", "Namespace"]
