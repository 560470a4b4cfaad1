"""The next documents of a collection against their rows: all but a few are equal, and settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bson.timestamp import Timestamp

from tailrace.engine import HeldRows, Suspects, suspects_of
from tailrace.errors import Unavailable
from tailrace.event import Namespace
from tailrace.model.snapshot import DocumentId
from tailrace.model.verification import ComparedCollection
from tailrace.snapshot.chunk import Chunk
from tailrace.snapshot.limits import ChunkLimit
from tailrace.verify.compare import Compared
from tailrace.verify.looks import MOST_KEYS, Looker, as_of
from tailrace.verify.source import MOST_BYTES, SourceDocuments, ids_of
from tailrace.verify.window import Window, window


@dataclass(frozen=True, slots=True)
class Scanned:
    """A part of a collection. ``size``: about that of all documents that were ``scanned``.

    ``open``: the keys that are looked at again. ``ends``: whether it is the last part.
    """

    compared: Compared
    open: Sequence[DocumentId]
    last: DocumentId | None
    scanned: int
    size: int
    ends: bool


async def scan(
    looker: Looker,
    of: ComparedCollection,
    limit: ChunkLimit,
    matching: Mapping[str, Any] | None,
    most: int = 1,
) -> Scanned:
    """Compares the next documents that are ``matching``.

    A destination that compares by itself gets up to ``most`` chunks of ``limit``, of which it
    compares one while the next is read.
    """
    if (suspects := suspects_of(looker.comparison)) is not None:
        return await _by_destination(looker, of, limit, matching, suspects, most)
    source = looker.source
    now = await source.now()
    limit = ChunkLimit(min(limit.documents, MOST_KEYS), limit.ms)
    chunk = await source.keys(of, now, limit, matching)
    if not (keys := ids_of(chunk)):
        return _scanned(chunk, Compared(), (), 0)
    several = ChunkLimit(2 * len(keys) + 100, limit.ms)

    async def read(time: Timestamp) -> SourceDocuments:
        return await source.documents_up_to(of, keys[-1], time, several)

    looked = await looker.look(of, keys, None if matching or of.clustered else read)
    result = looked.compared
    suspicious = [*(each.id for each in result.suspects), *result.unread]
    return _scanned(chunk, result, suspicious, looked.size // max(looked.read, 1))


async def _by_destination(
    looker: Looker,
    of: ComparedCollection,
    limit: ChunkLimit,
    matching: Mapping[str, Any] | None,
    suspects: Suspects,
    most: int,
) -> Scanned:
    """The same with a destination that compares the documents with its rows by itself."""
    reached, source = looker.reached(), looker.source
    moment: Window | None = None
    whole = Chunk((), None, 0, ends=False)
    left = most

    async def read(held: HeldRows) -> Sequence[bytes]:
        nonlocal moment, whole, left
        if whole.ends or whole.size >= MOST_BYTES or not left:
            return ()
        if moment is None:
            position = held.position.time if held.position is not None else None
            moment = window(reached, position, await source.now(), looker.full_document)
        after = replace(of, last=whole.last or of.last)
        chunk, moment = await as_of(moment, lambda time: source.chunk(after, time, limit, matching))
        whole, left = whole.followed_by(chunk), left - 1
        return chunk.raw_documents

    indices = await suspects(Namespace(of.database, of.collection), read)
    if left == most:
        raise Unavailable("the destination has compared nothing")
    keys = [whole.id_of(at) for at in indices]
    size = whole.size // max(whole.documents, 1)
    return _scanned(whole, Compared(whole.documents - len(keys)), keys, size)


def _scanned(
    chunk: Chunk, compared: Compared, keys: Sequence[DocumentId], document_size: int
) -> Scanned:
    size = document_size * chunk.scanned
    return Scanned(compared, keys, chunk.last, chunk.scanned, size, chunk.ends)
