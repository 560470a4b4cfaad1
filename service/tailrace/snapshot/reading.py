"""Reads the next part of a snapshot: its begin barrier, a chunk of a range, or its end barrier."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import Rows
from tailrace.errors import CommandFailed, TailraceError
from tailrace.event import RawBatch
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END, ReadEvents, barrier
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import RangeProgress, RangeState, SnapshotState
from tailrace.snapshot.chunk import Chunk, read_chunk
from tailrace.snapshot.error_codes import NOT_THERE, TOO_SLOW, UNAVAILABLE
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.keys import ChosenKeys, KeysChunk
from tailrace.snapshot.limits import ChunkLimits
from tailrace.snapshot.pace import ChunkPace
from tailrace.snapshot.plan import found_again, replaced
from tailrace.snapshot.rates import Rates
from tailrace.snapshot.server import SnapshotServer

_NOTHING = RawBatch(b"", [], None, None, {})

T = TypeVar("T")


def progress_rows(time: Timestamp, progress: SnapshotProgress, batch: RawBatch = _NOTHING) -> Rows:
    """No row, or one barrier; the snapshot has this ``progress`` after it."""
    return Rows(batch, time, lambda _: progress)


@dataclass
class _PrefetchedChunks:
    """Chunks that are read before they are asked for; ``found`` is ``None`` if that failed."""

    progress: SnapshotProgress
    time: Timestamp
    found: list[Rows] | None = None
    over: anyio.Event = field(default_factory=anyio.Event)


class Reading:
    """Reads the ranges of a snapshot in turn, at the given pace."""

    def __init__(
        self, scope: Scope, server: SnapshotServer, pace: ChunkPace, keys: ChosenKeys
    ) -> None:
        self._scope = scope
        self._server = server
        self._pace = pace
        self._limits = ChunkLimits()
        self._keys = keys
        self._turn = 0
        self._prefetched: _PrefetchedChunks | None = None
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
        return progress_rows(time, progress, self._barrier(SNAPSHOT_BEGIN, progress, time))

    async def next(
        self, progress: SnapshotProgress, time: Timestamp, *, briefly: bool
    ) -> list[Rows]:
        """The next rows, or the barrier after the last ones. An empty list: ask again."""
        prefetched, self._prefetched = self._prefetched, None
        if (
            prefetched is not None
            and not briefly
            and prefetched.progress is progress
            and prefetched.time == time
        ):
            waited = not prefetched.over.is_set()
            await prefetched.over.wait()
            if prefetched.found is not None:
                return prefetched.found
            if waited:
                return []  # changes have waited for that chunk, and go first now
        if names := self._names(progress):
            return await self._chunks(progress, names, time, briefly=briefly)
        only_keys = bool(progress.verification) and not progress.collections
        if not only_keys and (more := await replaced(self._server, self._scope, progress)):
            collections = sorted({f"{each.database}.{each.collection}" for each in more.values()})
            self._log.info(
                "snapshot.collections_replaced", snapshot=progress.id, collections=collections
            )
            return [progress_rows(time, replace(progress, ranges={**progress.ranges, **more}))]
        self._keys.forget()
        progress = replace(progress, state=SnapshotState.DONE, time=time, handled=frozenset())
        self._log.info("snapshot.read", snapshot=progress.id, documents=progress.documents)
        return [progress_rows(time, progress, self._barrier(SNAPSHOT_END, progress, time))]

    async def prefetch(self, progress: SnapshotProgress, time: Timestamp) -> None:
        """Reads the next chunks early, for a call of :meth:`next` with the same time."""
        if names := self._names(progress):
            prefetched = self._prefetched = _PrefetchedChunks(progress, time)
            try:
                with suppress(TailraceError):
                    prefetched.found = await self._chunks(progress, names, time, briefly=False)
            finally:
                prefetched.over.set()

    def _names(self, progress: SnapshotProgress) -> Sequence[str]:
        """The ranges whose turn it is."""
        names = [name for name, each in progress.ranges.items() if not each.over]
        if not names:
            return []
        at, count = self._turn % len(names), min(progress.parallel, len(names))
        self._turn = at + count
        return (names[at:] + names[:at])[:count]

    async def _chunks(
        self, progress: SnapshotProgress, names: Sequence[str], time: Timestamp, *, briefly: bool
    ) -> list[Rows]:
        """Reads the next chunk of each of these ranges concurrently."""
        most, matching = self._pace.size(briefly=briefly), filter_of(progress.filter)
        if briefly:
            most = max(most // len(names), 1)
        most_seconds = max(self._limits.of(name, most).ms for name in names) / 1000
        started = anyio.current_time()
        read = await _at_once(
            [partial(self._chunk, progress, name, time, most, matching) for name in names]
        )
        errors = [result for result in read if isinstance(result, TailraceError)]
        if len(errors) == len(read) or not all(map(_is_too_slow, errors)):
            raise next((each for each in errors if not _is_too_slow(each)), errors[0])
        # Longer than the server may take: the machine stood still, which asks for no rest.
        took = min(anyio.current_time() - started, most_seconds)
        chunks = [result[0] for result in read if isinstance(result, tuple)]
        if chunks:
            scanned, size = sum(c.scanned for c in chunks), sum(c.size for c in chunks)
            self._pace.note(scanned, size, took, briefly=briefly)
        rows: list[Rows] = []
        for name, result in zip(names, read, strict=True):
            of = progress.ranges[name]
            if isinstance(result, tuple):
                chunk, batch = result
                self.rates.note(of.uuid, chunk.scanned, started)
                after = partial(_after, replace(progress, time=time), name, chunk)
                rows.append(Rows(batch, time, after))
            elif isinstance(result, RangeProgress) and result != of:
                rows.append(progress_rows(time, progress.with_range(name, result)))
            if rows:
                progress = rows[-1].progress(len(rows[-1].batch))
        return rows

    async def _chunk(
        self,
        progress: SnapshotProgress,
        name: str,
        time: Timestamp,
        most: int,
        matching: Mapping[str, Any] | None,
    ) -> tuple[Chunk | KeysChunk, RawBatch] | RangeProgress:
        """The next chunk of a range with its events; or the range, if its collection moved."""
        of, limit = progress.ranges[name], self._limits.of(name, most)
        started = anyio.current_time()
        try:
            chosen = await self._keys.chunk(progress, name, time, most)
            if chosen is not None:
                return chosen
            chunk = await read_chunk(
                self._server,
                of,
                time,
                limit,
                matching=matching,
                read_preference=self._keys.read_preference,
            )
            self._limits.note(name, chunk.scanned, anyio.current_time() - started)
            events = ReadEvents(progress.id, name, of.database, of.collection)
            return chunk, events.batch(chunk.replies, time)
        except CommandFailed as error:
            if _is_too_slow(error):
                self._limits.too_slow(name, limit)
            if error.code not in NOT_THERE and error.code != UNAVAILABLE:
                raise
            moved = await self._moved(of)
            if moved is of and error.code == UNAVAILABLE:
                raise
            return moved

    async def _moved(self, of: RangeProgress) -> RangeProgress:
        """The range under its new name in the scope; or ``DROPPED`` or ``REFUSED``, if the rest
        cannot be read."""
        collection = await found_again(self._server, of)
        if collection is not None and collection.refusal:
            self._log.warning(
                "snapshot.collection_refused",
                collection=f"{of.database}.{collection.name}",
                reason=collection.refusal,
            )
            return replace(of, state=RangeState.REFUSED, note=collection.refusal)
        if collection is not None and collection.name == of.collection:
            return of
        if collection is not None and self._scope.collection is None:
            self._log.info(
                "snapshot.collection_renamed", collection=of.collection, to=collection.name
            )
            return replace(of, collection=collection.name)
        note = "it was dropped" if collection is None else f"it was renamed to {collection.name!r}"
        self._log.info("snapshot.collection_left", collection=of.collection, reason=note)
        return replace(of, state=RangeState.DROPPED, note=note)

    def _barrier(self, operation: str, progress: SnapshotProgress, time: Timestamp) -> RawBatch:
        names = {"db": self._scope.database, "coll": self._scope.collection}
        namespace = {name: each for name, each in names.items() if each is not None}
        fields: dict[str, Any] = {"ns": namespace} if namespace else {}
        fields["snapshot"] = {
            "id": progress.id,
            "mode": progress.mode.value,
            "filter": progress.filter,
            "chosen": list(progress.collections),
            "began": progress.began,
            "collections": [_described(each) for each in progress.by_collection],
        }
        return barrier(operation, progress.id, time, fields)


async def _at_once(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T | TailraceError]:
    """The results of concurrent calls, or their errors, after all have ended."""
    results: dict[int, T | TailraceError] = {}

    async def wait(index: int, call: Callable[[], Awaitable[T]]) -> None:
        try:
            results[index] = await call()
        except TailraceError as error:
            results[index] = error

    if len(calls) == 1:
        await wait(0, calls[0])
        return [results[0]]
    async with anyio.create_task_group() as tasks:
        for index, call in enumerate(calls):
            tasks.start_soon(wait, index, call)
    return [results[index] for index in range(len(calls))]


def _is_too_slow(error: TailraceError) -> bool:
    return isinstance(error, CommandFailed) and error.code in TOO_SLOW


def _after(
    progress: SnapshotProgress, name: str, chunk: Chunk | KeysChunk, count: int
) -> SnapshotProgress:
    """The snapshot's progress after the first ``count`` documents of a range's chunk."""
    return progress.with_range(name, _behind(progress.ranges[name], chunk, count))


def _behind(of: RangeProgress, chunk: Chunk | KeysChunk, count: int) -> RangeProgress:
    """The range's progress after the first ``count`` documents of the chunk."""
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
