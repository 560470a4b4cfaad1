"""The snapshot of keys: only the documents whose rows a verification found to differ.

The keys are in the record of the verification, not in the checkpoint, which has only how many of
them were read. A key without a document comes as a ``delete``, so each key is one event, as of the
same time as the others of its part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import FindKeys
from tailrace.event import RawBatch
from tailrace.event.document_key import identity
from tailrace.event.snapshot_events import ReadEvents
from tailrace.event.wanted_documents import filter_of
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import DocumentId, RangeProgress, SnapshotState
from tailrace.snapshot.limits import CHUNK_MS
from tailrace.snapshot.listed_collections import listed
from tailrace.snapshot.plan import NothingToRead, plan
from tailrace.snapshot.server import Find, SnapshotServer

MOST_KEYS = 1000
"""The most keys of a part."""
_MOST_BYTES = 8 * 1024 * 1024
"""A part has fewer keys if their documents are larger than this."""


@dataclass(frozen=True, slots=True)
class KeysChunk:
    """Consecutive keys of a collection, as :class:`tailrace.snapshot.chunk.Chunk`: one event
    each. ``size``: of their documents."""

    keys: Sequence[DocumentId]
    size: int
    ends: bool

    @property
    def documents(self) -> int:
        """The number of events."""
        return len(self.keys)

    @property
    def scanned(self) -> int:
        """The number of keys."""
        return len(self.keys)

    @property
    def last(self) -> DocumentId | None:
        """The last key."""
        return self.keys[-1] if self.keys else None

    def id_of(self, index: int) -> DocumentId:
        """The key at this index."""
        return self.keys[index]


@dataclass(slots=True)
class ChosenKeys:
    """The keys of a scope's snapshot. ``find``: reads them."""

    scope: Scope
    server: SnapshotServer
    read_preference: str | None
    find: FindKeys | None = None
    _of: str = ""
    _keys: Mapping[str, Sequence[DocumentId]] = field(default_factory=dict)

    async def of(self, progress: SnapshotProgress) -> Mapping[str, Sequence[DocumentId]]:
        """By UUID of its collection, the keys of a snapshot; empty for a snapshot without keys.

        Raises :class:`NothingToRead`, and the errors of the store.
        """
        if not progress.verification:
            return {}
        if self._of != progress.verification:
            found = await self.find(self.scope.name, progress.verification) if self.find else None
            if found is None:
                what = f"verification {progress.verification}, whose differences it brings"
                raise NothingToRead(f"{what}, is not stored any more: verify again")
            self._of, self._keys = progress.verification, found
        return self._keys

    def forget(self) -> None:
        """The snapshot is over."""
        self._of, self._keys = "", {}

    async def plan(self, progress: SnapshotProgress) -> SnapshotProgress:
        """The collections that have such keys, and those that are read as a whole."""
        if not progress.verification:
            return await plan(self.server, self.scope, progress)
        keys = await self.of(progress)
        if progress.collections:
            progress = await plan(self.server, self.scope, progress)
        ranges = dict(progress.ranges)
        async for one in listed(self.server, self.scope):
            if one.uuid in keys and not one.refusal:
                own = RangeProgress(one.uuid, one.database, one.name, len(keys[one.uuid]))
                ranges[one.uuid] = replace(own, clustered=one.clustered)
        return replace(progress, state=SnapshotState.READING, ranges=ranges)

    async def chunk(
        self, progress: SnapshotProgress, name: str, time: Timestamp, most: int
    ) -> tuple[KeysChunk, RawBatch] | None:
        """The next keys of a range, with their events; ``None`` if it is read as a whole."""
        of, keys = progress.ranges[name], (await self.of(progress)).get(name)
        if keys is None:
            return None
        part = keys[of.scanned : of.scanned + min(most, MOST_KEYS)]
        while True:
            fields = {
                "filter": RawBSONDocument(filter_of(key.raw for key in part)),
                "batchSize": len(part) + 1,
                "maxTimeMS": CHUNK_MS,
            }
            uuid = bytes.fromhex(of.uuid)
            where = of.database, of.collection, uuid, time
            replies = await self.server.find(
                Find(*where, fields, self.read_preference, _MOST_BYTES)
            )
            if len(part) < 2 or not replies[-1].cursor_id:
                break
            # Those that did not come may be there: fewer keys, whose documents all come.
            part = part[: max(sum(map(len, replies)) // 2, 1)]
        events = ReadEvents(progress.id, name, of.database, of.collection)
        batch, size = events.of_keys(part, replies, time)
        return KeysChunk(part, size, ends=of.scanned + len(part) >= len(keys)), batch

    async def up_to(self, progress: SnapshotProgress, name: str, last: DocumentId) -> int | None:
        """How many keys of a range come up to this one; ``None`` if it is read as a whole."""
        wanted, keys = identity(last.raw, 0), (await self.of(progress)).get(name)
        if keys is None:
            return None
        return next((at for at, key in enumerate(keys, 1) if identity(key.raw, 0) == wanted), 0)
