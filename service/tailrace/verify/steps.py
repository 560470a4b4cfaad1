"""The steps of a verification: a chunk of documents, a page of keys, a look at what is open."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import bson
import structlog
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed
from tailrace.event import Namespace
from tailrace.event.key import read_key
from tailrace.model.snapshot import DocumentId, RangeProgress
from tailrace.model.verification import ComparedCollection, Phase
from tailrace.snapshot.error_codes import NOT_THERE, TOO_SLOW
from tailrace.snapshot.filter import filter_of
from tailrace.snapshot.limits import ChunkLimit, ChunkLimits
from tailrace.snapshot.pace import ChunkPace
from tailrace.snapshot.plan import found_again
from tailrace.verify.compare import Compared
from tailrace.verify.findings import Findings
from tailrace.verify.looks import Looker, OpenKeys
from tailrace.verify.scan import scan
from tailrace.verify.source import Source, identities
from tailrace.verify.window import Reached

_WAIT_SECONDS = 1.0
"""How long the next look at a key waits at most until the handler has its last changes."""
_LOOK_SECONDS = 0.05
_SAMPLED = 2**32
_CHUNKS = 4
"""The most chunks in one read of a destination that compares by itself: one if they are paced, or
slow."""


@dataclass(slots=True)
class Steps:
    """What a run does next with a collection. ``reached``: see :class:`Looker`. ``is_busy``:
    whether changes would wait for a large step. Steps are small then, with pauses between them, as
    for a snapshot."""

    findings: Findings
    source: Source
    pace: ChunkPace
    reached: Callable[[], Reached]
    is_busy: Callable[[], bool]
    _limits: ChunkLimits = field(default_factory=ChunkLimits)
    _open: OpenKeys = field(default_factory=OpenKeys)
    _current: tuple[str, Phase] | None = None
    """The collection and phase to which the open keys belong."""
    _scanned: bool = False

    async def step(self, looker: Looker, of: ComparedCollection) -> None:
        """The next chunk or page of a collection, or the next look at its open keys."""
        if self._current != (of.name, of.phase):
            await self._begin(of)
        try:
            if self._open.looks and (self._scanned or len(self._open.looks) >= self._open.most):
                of = await self._look_again(looker, of)
            elif self._scanned:
                of = self._next_phase(of)
            elif of.phase is Phase.SOURCE:
                of = await self._chunk(looker, of)
            else:
                of = await self._page(looker, of)
        except CommandFailed as error:
            if error.code not in NOT_THERE or not await self._moved(of):
                raise
            return
        if self._current == (of.name, of.phase):
            of = replace(of, open=tuple(self._open.looks))
        self.findings.update(of)

    async def _begin(self, of: ComparedCollection) -> None:
        request = self.findings.record.request
        self._open, self._scanned = OpenKeys(), bool(request.keys)
        self._open.add(of.open)
        if request.keys and not of.open and not of.counts.compared:
            self._open.add(await self._chosen(of, request.keys))
        self._current = of.name, of.phase

    async def _chosen(self, of: ComparedCollection, texts: Sequence[str]) -> list[DocumentId]:
        """The keys that were asked for, as the source writes them, if it has them."""
        keys = [DocumentId(bson.encode({"_id": read_key(text).value})) for text in texts]
        existing = await self.source.existing(of, keys, await self.source.now())
        return [existing.get(one, key) for one, key in zip(identities(keys), keys, strict=True)]

    def _next_phase(self, of: ComparedCollection) -> ComparedCollection:
        phase = Phase.DESTINATION if self._has_pages(of) else Phase.DONE
        return replace(of, phase=phase, open=(), cursor="")

    def _has_pages(self, of: ComparedCollection) -> bool:
        """Whether the keys of rows are read after the documents."""
        request = self.findings.record.request
        return of.phase is Phase.SOURCE and not request.keys and not request.filter

    async def _chunk(self, looker: Looker, of: ComparedCollection) -> ComparedCollection:
        """Compares the next documents of a collection."""
        briefly = self.is_busy()
        wanted = ChunkLimit(self.pace.size(briefly=briefly))
        limit = self._limits.of(of.name, wanted.documents)
        most = 1 if self.pace.per_second or limit != wanted or briefly else _CHUNKS
        began = anyio.current_time()
        try:
            scanned = await scan(looker, of, limit, self._matching(), most)
        except CommandFailed as error:
            if error.code in TOO_SLOW:
                self._limits.too_slow(of.name, limit)
            raise
        # Most of the time is that of answers on their way: only what the server gives up counts.
        self._limits.note(of.name, scanned.scanned, 0.0)
        took = anyio.current_time() - began
        self.pace.note(scanned.scanned, scanned.size, took, briefly=briefly)
        self._open.add(scanned.open)
        of = await self._counted(of, scanned.compared)
        self._scanned = scanned.ends
        return replace(of, last=scanned.last or of.last)

    def _matching(self) -> Mapping[str, Any] | None:
        request = self.findings.record.request
        chosen = [filter_of(request.filter)] if request.filter else []
        chosen += [{"$sampleRate": request.sample}] if request.sample < 1 else []
        return {"$and": chosen} if chosen else None

    async def _counted(self, of: ComparedCollection, result: Compared) -> ComparedCollection:
        """Counts what a look has settled without a difference."""
        of = replace(of, note=result.note or of.note)
        if of.phase is Phase.DESTINATION:
            return of  # what has a document was compared before
        refused = result.refused
        if refused:
            await self.findings.set_aside(of, refused)
        return self.findings.count(of, equal=result.equal, set_aside=len(refused))

    async def _look_again(self, looker: Looker, of: ComparedCollection) -> ComparedCollection:
        """Looks at open keys once more: now a difference is one, if no change touches it."""
        if self._open.waits:
            await self._later(self._open.after)
        keys, began = self._open.next(), anyio.current_time()
        looked = await looker.look(of, keys)
        settled, result = await looker.settled(of, looked), looked.compared
        differing = settled.differing
        if of.phase is Phase.DESTINATION:
            differing = [each for each in differing if each.has_no_document]
        elif self._has_pages(of):  # a row without a document comes with its page
            differing = [each for each in differing if not each.has_no_document]
        aside = await self.findings.set_aside(of, [each.id for each in differing])
        differing = [each for each in differing if each.id not in aside]
        of = await self._counted(of, result)
        self._open.looked(keys, len(result.unread), high=looked.window.high)
        undecided = {*settled.open, *result.unread}
        self._open.settle([key for key in keys if key not in undecided])
        if self.is_busy():
            self.pace.note(0, 0, anyio.current_time() - began, briefly=True)
        fluid = self._open.again(settled.open)
        of = self.findings.count(of, set_aside=len(aside), in_flux=len(fluid))
        return self.findings.differs(of, differing, looked.window.at)

    async def _page(self, looker: Looker, of: ComparedCollection) -> ComparedCollection:
        """Looks for rows without documents among the next keys of the destination."""
        began, namespace = anyio.current_time(), Namespace(of.database, of.collection)
        briefly = self.is_busy()
        most = self.pace.size(briefly=True) if briefly else self.pace.most_documents
        held = await looker.comparison.stored_keys(namespace, of.cursor or None, most)
        now = await self.source.now()
        sample = self.findings.record.request.sample
        keys = [each.id for each in held.keys if each.id is not None]
        if sample < 1:
            keys = [key for key in keys if zlib.crc32(key.raw) < sample * _SAMPLED]
        if keys:
            self._open.add(await self.source.without_documents(of, keys, now))
        strange = [each.text for each in held.keys if each.id is None]
        of = self.findings.has_no_document(of, strange, now)
        self.pace.note(len(held.keys), 0, anyio.current_time() - began, briefly=briefly)
        self._scanned = held.after is None
        return replace(of, cursor=held.after or of.cursor)

    async def _moved(self, of: ComparedCollection) -> bool:
        """Notes that a collection was dropped or renamed; returns whether it was."""
        progress = RangeProgress(of.uuid, of.database, of.collection)
        collection = await found_again(self.source.server, progress)
        if collection is not None and (collection.name, collection.refusal) == (of.collection, ""):
            return False
        note = "it was dropped meanwhile"
        if collection is not None:
            note = collection.refusal or f"it was renamed to {collection.name} meanwhile"
        structlog.get_logger().info(
            "verification.collection_gone",
            scope=self.findings.record.scope,
            collection=of.name,
            reason=note,
        )
        self.findings.gone(of, note)
        self._current = None
        return True

    async def _later(self, time: Timestamp | None) -> None:
        """Waits until the handler has handled everything up to a time, but not for long."""
        with anyio.move_on_after(_WAIT_SECONDS):
            while time is not None and self.reached().time < time:  # noqa: ASYNC110 - the engine's
                await anyio.sleep(_LOOK_SECONDS)
