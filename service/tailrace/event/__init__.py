"""The one codec for events: their layout in BSON, their fields, and their conversions."""

from tailrace.event.batch import Batch, Chunk
from tailrace.event.change_event import ChangeEvent
from tailrace.event.image import Image
from tailrace.event.namespace import Namespace

__all__ = ["Batch", "ChangeEvent", "Chunk", "Image", "Namespace"]
