"""The one codec for events: their layout in BSON, their fields, and their conversions."""

from tailrace.event.batch import RawBatch, Slice
from tailrace.event.change_event import ChangeEvent
from tailrace.event.image import Image
from tailrace.event.namespace import Namespace

__all__ = ["ChangeEvent", "Image", "Namespace", "RawBatch", "Slice"]
