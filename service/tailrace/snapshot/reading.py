"""What comes next of a snapshot: its beginning, a chunk of one of its ranges, or its end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.read.rows import Rows
from tailrace.errors import CommandFailed
from tailrace.event import Batch
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END, ReadEvents, barrier
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import RangeProgress, RangeState, SnapshotState
from tailrace.snapshot.chunk import Chunk, read_chunk
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.pace import Pace
from tailrace.snapshot.plan import name_of
from tailrace.snapshot.rates import Rates
from tailrace.snapshot.server import SnapshotServer

_NOT_THERE = frozenset({26, 361})
"""NamespaceNotFound and CollectionUUIDMismatch (mongod, src/mongo/base/error_codes.yml)."""
_NOTHING = Batch(b"", [], None, None, {})


def told(time: Timestamp, progress: SnapshotProgress, batch: Batch = _NOTHING) -> Rows:
    """No rows, or one barrier, after which the snapshot is that far."""
    return Rows(batch, time, lambda _: progress)


class Reading:
    """Reads of the server, at a pace; each range in its turn."""

    def __init__(
        self, scope: Scope, server: SnapshotServer, pace: Pace, read_preference: str | None
    ) -> None:
        self._scope = scope
        self._server = server
        self._pace = pace
        self._read_preference = read_preference
        self._turn = 0
        self.rates = Rates()
        self._log = structlog.get_logger().bind(scope=scope.name)

    def begin(self, planned: SnapshotProgress, time: Timestamp) -> Rows:
        """The barrier before the first row."""
        progress = replace(planned, began=time, time=time)
        self._log.info(
            "snapshot.begun",
            snapshot=progress.id,
            mode=progress.mode.value,
            collections=len(progress.ranges),
            documents=sum(each.estimate for each in progress.ranges.values()),
        )
        return told(time, progress, self._barrier(SNAPSHOT_BEGIN, progress, time))

    async def next(
        self, progress: SnapshotProgress, time: Timestamp, *, briefly: bool
    ) -> Rows | None:
        """The next rows, or the barrier behind the last one; ``None``: ask again."""
        open_ranges = [name for name, each in progress.ranges.items() if not each.over]
        if open_ranges:
            self._turn += 1
            name = open_ranges[self._turn % len(open_ranges)]
            return await self._chunk(progress, name, time, briefly=briefly)
        progress = replace(progress, state=SnapshotState.DONE, time=time, handled={})
        documents = sum(each.documents for each in progress.ranges.values())
        self._log.info("snapshot.done", snapshot=progress.id, documents=documents)
        return told(time, progress, self._barrier(SNAPSHOT_END, progress, time))

    async def _chunk(
        self, progress: SnapshotProgress, name: str, time: Timestamp, *, briefly: bool
    ) -> Rows | None:
        of = progress.ranges[name]
        started = anyio.current_time()
        try:
            chunk = await read_chunk(
                self._server,
                of,
                time,
                self._pace.size(briefly=briefly),
                matching=filter_of(progress.filter),
                read_preference=self._read_preference,
            )
        except CommandFailed as error:
            if error.code not in _NOT_THERE:
                raise
            return await self._moved(progress, name, time)
        took = anyio.current_time() - started
        self.rates.note(of.uuid, chunk.scanned, started)
        self._pace.note(chunk.scanned, chunk.size, took, briefly=briefly)
        events = ReadEvents(progress.id, bytes.fromhex(of.uuid), of.database, of.collection)
        progress = replace(progress, time=time)
        return Rows(
            events.batch(chunk.replies, time),
            time,
            lambda count: progress.with_range(name, _behind(of, chunk, count)),
        )

    async def _moved(self, progress: SnapshotProgress, name: str, time: Timestamp) -> Rows | None:
        """The collection has another name, or is gone: what was there of it does not come."""
        of = progress.ranges[name]
        found = await name_of(self._server, of.database, of.uuid)
        if found == of.collection:
            return None
        if found is not None and self._scope.collection is None:
            self._log.info("snapshot.collection_renamed", collection=of.collection, to=found)
            return told(time, progress.with_range(name, replace(of, collection=found)))
        note = "it was dropped" if found is None else f"it was renamed to {found!r}"
        self._log.info("snapshot.collection_left", collection=of.collection, reason=note)
        gone = replace(of, state=RangeState.DROPPED, note=note)
        return told(time, progress.with_range(name, gone))

    def _barrier(self, operation: str, progress: SnapshotProgress, time: Timestamp) -> Batch:
        names = {"db": self._scope.database, "coll": self._scope.collection}
        namespace = {name: each for name, each in names.items() if each is not None}
        fields: dict[str, Any] = {"ns": namespace} if namespace else {}
        fields["snapshot"] = {
            "id": progress.id,
            "mode": progress.mode.value,
            "filter": progress.filter,
            "began": progress.began,
            "collections": [_described(each) for each in progress.by_collection],
        }
        return barrier(operation, progress.id, time, fields)


def _behind(of: RangeProgress, chunk: Chunk, count: int) -> RangeProgress:
    """After so many of the chunk's documents."""
    if count < chunk.documents:
        scanned, documents = of.scanned + count, of.documents + count
        return replace(of, scanned=scanned, documents=documents, last=chunk.id_of(count - 1))
    return replace(
        of,
        scanned=of.scanned + chunk.scanned,
        documents=of.documents + chunk.documents,
        last=chunk.last or of.last,
        state=RangeState.DONE if chunk.ends else of.state,
    )


def _described(of: RangeProgress) -> Mapping[str, Any]:
    return {
        "db": of.database,
        "coll": of.collection,
        "uuid": of.uuid,
        "state": of.state.value,
        "documents": of.documents,
    }
