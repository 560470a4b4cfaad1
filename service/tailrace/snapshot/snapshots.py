"""The snapshots of one scope, one at a time: their start, progress and failures.

Implements :class:`tailrace.engine.plan.row_source.RowSource` for the scope's runs. A run continues
the snapshot from the checkpoint, so rows that the previous run read but did not handle are read
again.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import structlog
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import (
    KnownSnapshots,
    ObservedSnapshot,
    Rows,
    TimeUnavailable,
)
from tailrace.errors import CheckpointError, CommandFailed, DriverError, describe
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.failure_policy import Backoff
from tailrace.model.snapshot import SnapshotMode, SnapshotRequest, SnapshotState
from tailrace.snapshot.earliest import EarliestTime
from tailrace.snapshot.error_codes import ACCESS, READ_LATER, is_refusal, raise_refusal
from tailrace.snapshot.followed import warn_of_followed
from tailrace.snapshot.keys import ChosenKeys
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.pace import ChunkPace
from tailrace.snapshot.plan import NothingToRead, warn_of_left_out
from tailrace.snapshot.reading import Reading, progress_rows
from tailrace.snapshot.requests import begun, changes, corrected, to_cancel, to_pause, to_start
from tailrace.snapshot.server import SnapshotServer
from tailrace.snapshot.stored import StoredBefore
from tailrace.snapshot.target import asked_for, with_target_of

_BACKOFF = Backoff(0.1, 10.0)

T = TypeVar("T")


class Snapshots:
    """The snapshots of one scope."""

    def __init__(self, scope: Scope, server: SnapshotServer, options: SnapshotOptions) -> None:
        self.scope = scope
        self.progress: SnapshotProgress | None = None
        """How far the snapshot is read. The checkpoint says how far it is handled."""
        self._server = server
        self._options = options
        self._pace = ChunkPace(options.chunk_documents, options.documents_per_second)
        self._keys = ChosenKeys(scope, server, options.read_preference)
        self._reading = Reading(scope, server, self._pace, self._keys)
        self._changed = anyio.Event()
        self._request: SnapshotProgress | Mapping[str, Any] | None = None
        """What is to be done next: a new snapshot, or changed fields of the one under way."""
        self._observed_generation = 0
        """The last generation of the desired state that was applied in this run."""
        self._planned: SnapshotProgress | None = None
        self._earliest = EarliestTime()
        self._stored = StoredBefore(server, {}, self._keys)
        self._failures = 0
        self._trouble = ""
        self._to_warn = False
        self._to_examine = False
        self._log = structlog.get_logger().bind(scope=scope.name)

    # --- what runs call --------------------------------------------------------------------

    def begin(self, known: KnownSnapshots) -> SnapshotProgress | None:
        """A run begins: see :meth:`tailrace.engine.plan.row_source.RowSource.begin`."""
        stored = known.stored
        self._keys.find = known.keys
        self._stored = StoredBefore(self._server, known.rows, self._keys, known.handled)
        self._planned = None
        self._request = None
        self._observed_generation = stored.observed_generation if stored is not None else 0
        self.progress = with_target_of(self.scope, stored)
        self._earliest = EarliestTime(known=stored is None or stored.over)
        self._to_examine = known.fresh or self._options.images
        if known.fresh and self._options.initial:
            self._begin_own(SnapshotMode.INITIAL, known.generation)
        elif known.fresh:
            self._to_warn = True
        elif known.gap and self._options.after_gap:
            self._begin_own(SnapshotMode.GAP, known.generation)
        return self.progress

    def _begin_own(self, mode: SnapshotMode, generation: int) -> None:
        """Begins the scope's own snapshot. It replaces an operator's request, and covers it."""
        reason, before = f"one of mode {mode} begins", self.progress
        if before is not None and not before.over:
            self._log.warning(
                "snapshot.replaced", snapshot=before.id, mode=before.mode.value, reason=reason
            )
        if generation > self._observed_generation:
            self._log.warning("snapshot.request_dropped", reason=reason)
            self._observed_generation = generation
        self.progress = replace(self._new(mode), observed_generation=self._observed_generation)

    def leave(self) -> None:
        """Another process may follow the scope now: forgets everything, as it may be outdated."""
        self._request = self.progress = None

    @property
    def active(self) -> bool:
        """Whether there is something to read, now or later."""
        return self._request is not None or (self.progress is not None and self.progress.active)

    async def ready(self) -> None:
        """Returns when the next rows may be read. Lists the collections first."""
        if self._to_examine:
            self._to_examine = False
            await warn_of_followed(self._server, self.scope, images=self._options.images)
        if self._to_warn:
            self._to_warn = False
            await warn_of_left_out(self._server, self.scope)
        while self._request is None:
            progress = self.progress
            if progress is None or not progress.active:
                if self._changed.is_set():
                    self._changed = anyio.Event()
                await self._changed.wait()
                continue
            await self._pace.wait()
            if not await self._asked(self._earliest.ask(self._server), progress):
                continue
            known = self._planned is not None and self._planned.id == progress.id
            if known or progress.state is not SnapshotState.PLANNED:
                return
            # The stream is open: it has every collection that is created from now on.
            self._planned = await self._asked(self._plan(progress), progress)

    async def _plan(self, progress: SnapshotProgress) -> SnapshotProgress:
        """A plan that is hardly older than the last listing, however long the first one takes."""
        return await self._keys.plan(await self._keys.plan(progress))

    async def read(self, time: Timestamp, *, briefly: bool) -> Sequence[Rows]:
        """The next rows, as of a time; a small number if ``briefly``."""
        progress = self.progress
        if self._request is not None:
            self.progress = progress = self._requested(self._request)
            self._request = None
            self._reading.rates.clear()
            rows = replace(progress_rows(time, progress), request=True)
            return await self._stored.noted(progress, [rows])
        if progress is None or not progress.active:
            return []
        self._earliest.require(time)
        chunks = await self._asked(self._next(progress, time, briefly=briefly), progress) or []
        for rows in chunks:
            self._failures, self._trouble = 0, ""
            self.progress = rows.progress(len(rows.batch))
        return chunks

    async def prefetch(self, time: Timestamp) -> None:
        """Reads the next chunks early, for a call of :meth:`read` with the same time."""
        progress = self.progress
        if progress is not None and progress.active and self._request is None and self._pace.now:
            await self._reading.prefetch(progress, time)

    async def _next(
        self, progress: SnapshotProgress, time: Timestamp, *, briefly: bool
    ) -> Sequence[Rows]:
        if progress.state is SnapshotState.PLANNED:
            if self._planned is None:
                return []
            # The plan took a while: what was created meanwhile is added in turn.
            self._planned = await self._keys.plan(self._planned)
            rows = [self._reading.begin(self._planned, time)]
        else:
            self.progress = progress = await self._stored.least(progress, time)
            rows = await self._reading.next(progress, time, briefly=briefly)
        return await self._stored.noted(progress, rows)

    def observed(self) -> ObservedSnapshot | None:
        """The progress of the snapshot, or the one that an operator has just asked for."""
        progress = self._request if isinstance(self._request, SnapshotProgress) else self.progress
        if progress is None:
            return None
        why = self._trouble
        if not why and progress.state is SnapshotState.PLANNED:
            why = (
                "it waits for the earlier changes" if self._planned else "it lists the collections"
            )
        return ObservedSnapshot(progress, self._reading.rates.now(), why)

    # --- what operators ask for ------------------------------------------------------------

    def start(self, collections: tuple[str, ...] = (), filter: str = "") -> SnapshotRequest | str:
        """What to request for a snapshot, or why there can be none; see :func:`to_start`."""
        return to_start(self.scope, self._under_way, collections, filter)

    def pause(self, *, paused: bool) -> SnapshotRequest | str:
        """What to request to pause or resume the snapshot under way, or why it cannot be."""
        return to_pause(self.scope, self._under_way, paused=paused)

    def cancel(self) -> SnapshotRequest | str:
        """What to request to end the snapshot under way, or why it cannot be."""
        return to_cancel(self.scope, self._under_way)

    def apply(self, generation: int, request: SnapshotRequest) -> None:
        """Applies what is wanted since a stored generation, once in a run: see :meth:`begin`."""
        if generation <= self._observed_generation:
            return
        self._observed_generation, before = generation, self._under_way
        log = self._log.bind(snapshot=request.id, generation=generation)
        if before is not None and before.id == request.id:
            event = "snapshot.paused" if request.paused else "snapshot.resumed"
            log.info("snapshot.cancelled" if request.cancelled else event)
            fields = changes(generation, request)
            if isinstance(self._request, SnapshotProgress):
                self._queue(replace(before, **fields))
            else:
                self._queue({**(self._request or {}), **fields})
        elif request.changes(self.progress):
            log.info("snapshot.requested", collections=request.collections)
            self._queue(begun(self.scope, generation, request, self._options.parallel))

    @property
    def _under_way(self) -> SnapshotProgress | None:
        """The snapshot as it will be after the last request is applied."""
        one = self.progress if self._request is None else self._requested(self._request)
        return None if one is None or one.over else one

    def _queue(self, request: SnapshotProgress | Mapping[str, Any]) -> None:
        """Queues a request. It takes a place on the watermark, so that the checkpoint has it."""
        self._request = request
        self._changed.set()

    def _requested(self, request: SnapshotProgress | Mapping[str, Any]) -> SnapshotProgress:
        if isinstance(request, SnapshotProgress):
            return request
        assert self.progress is not None  # noqa: S101 - for the type checker: see apply
        return replace(self.progress, **request)

    def _new(self, mode: SnapshotMode) -> SnapshotProgress:
        return asked_for(self.scope, mode, self._options.filter, self._options.parallel)

    # --- failures --------------------------------------------------------------------------

    async def _asked(self, answer: Awaitable[T], progress: SnapshotProgress) -> T | None:
        """The server's answer; ``None`` if it must be asked again later, or is refused to an
        operator. Any other refusal is raised, unless the configuration was corrected since."""
        try:
            return await answer
        except CommandFailed as error:
            if error.code in READ_LATER:
                self._fail(error)
                raise TimeUnavailable from error
            if progress.mode is not SnapshotMode.REQUESTED and is_refusal(error):
                new, initial = self._new(progress.mode), self._options.initial
                correction = corrected(progress, new, initial=initial)
                if correction is None or error.code in ACCESS:
                    raise_refusal(self.scope.name, error)
                self._log.warning("snapshot.corrected", snapshot=progress.id, error=str(error))
                self._queue(correction)
            elif not is_refusal(error) or error.code in ACCESS:
                self._fail(error)
            else:
                self._refuse(progress, describe(error))
        except NothingToRead as error:
            self._refuse(progress, str(error))
        except (DriverError, CheckpointError) as error:
            self._fail(error)
        return None

    def _refuse(self, progress: SnapshotProgress, why: str) -> None:
        self._log.error("snapshot.refused", snapshot=progress.id, error=why)
        if not isinstance(self._request, SnapshotProgress):
            self._queue({"state": SnapshotState.CANCELLED, "note": why})

    def _fail(self, error: DriverError | CheckpointError) -> None:
        self._failures, self._trouble = self._failures + 1, describe(error)
        delay = round(_BACKOFF.delay(self._failures), 3)
        self._pace.rest(delay)
        self._log.warning("snapshot.chunk_failed", error=self._trouble, delay_seconds=delay)
