"""A comparison that a destination has opened, with its position as the engine knows positions, and
the keys of rows."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import bson

from tailrace.destination.position import stored_position
from tailrace.engine import Comparison, HeldKeys, HeldRows, Row, RunIdentity
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.bson import INT32, encoded
from tailrace.event.document_key import identity
from tailrace.model.snapshot import DocumentId


@dataclass(frozen=True, slots=True)
class Compared:
    """Implements :class:`Comparison` for the engine. Raises :class:`InvalidPosition`, too."""

    comparison: Comparison
    identity: RunIdentity

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        return await self.comparison.expected(documents)

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        held = await self.comparison.stored(collection, keys)
        text = held.position_text
        position = None if text is None else stored_position(text, self.identity)
        return replace(held, position=position)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return await self.comparison.stored_keys(collection, after, most)


def event_key(collection: Namespace, id: DocumentId) -> bytes:
    """:attr:`tailrace.ChangeEvent.key` of the document with this ``_id``."""
    namespace = bson.encode({"db": collection.db, "coll": collection.coll})
    return namespace + identity(id.raw, 0)


def document_id(key: bytes) -> DocumentId | None:
    """The ``_id`` in a :attr:`tailrace.ChangeEvent.key`, in one of the types that MongoDB holds
    equal; ``None`` if this is no such key."""
    try:
        element = key[INT32(key, 0)[0] :]
        raw = encoded(element)
        return DocumentId(raw) if element and identity(raw, 0) == element else None
    except (ValueError, struct.error):
        return None
