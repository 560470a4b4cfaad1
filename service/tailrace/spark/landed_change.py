"""A change as the lake has it, and what it does to a document of a collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tailrace.event.namespace import Namespace
from tailrace.event.snapshot_barrier import SnapshotBarrier
from tailrace.event.snapshot_events import READ, SNAPSHOT_END

OF_MANY = ("drop", "dropDatabase", "rename", SNAPSHOT_END)
"""The operations that need the documents that are there."""

PUTS = ("insert", "replace", "update", READ)

Json: TypeAlias = str | bytes
"""BSON as ``bytes``, or canonical Extended JSON as ``str``."""


@dataclass(frozen=True, slots=True)
class LandedChange:
    """An event of the log. ``looked_up``: an update's document was looked up and not there."""

    operation: str
    namespace: Namespace | None
    time: int
    key: bytes | None = None
    document: Json | None = None
    description: Json | None = None
    looked_up: bool = False
    to: Namespace | None = None
    snapshot: SnapshotBarrier | None = None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A document that a change puts, or deletes; ``document``: ``None`` if it is not known."""

    collection: Namespace
    key: str
    there: bool
    document: Json | None = None
