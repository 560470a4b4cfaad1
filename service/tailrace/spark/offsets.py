"""The offsets of a stream: the last segment read of each scope.

Beside it, an offset has what a later run of the query could not tell any more: ``SCOPE:begin``, the
first segment that the query reads, and ``SCOPE:newest``, the greatest cluster time read so far. So
a batch is the same after a restart, also the first one. ``:lake`` is the lake's identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
)

from tailrace.errors import PipelineRefused
from tailrace.pipeline.segments import LandedSegment, read_footers
from tailrace.spark.landed import LandedFiles
from tailrace.spark.options import Options
from tailrace.spark.planning import Part, divided, newest_of

Offset = dict[str, Any]
_BEGIN, _NEWEST, _LAKE = ":begin", ":newest", ":lake"
_MOST_AHEAD = 256
"""A batch with a limit has at most so many segments of a scope, whose footers are read before."""


class Offsets:
    """Plans the batches of one run of a query."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._options = Options.of(texts)
        self._landed = LandedFiles.open(self._options)
        self._at_first = frozenset(self._landed.scopes())
        self._present: dict[str, int] | None = None
        self._read: dict[str, tuple[int, list[LandedSegment]]] = {}

    @property
    def limit(self) -> ReadLimit:
        if self._options.max_events:
            return ReadMaxRows(self._options.max_events)
        if self._options.max_segments:
            return ReadMaxFiles(self._options.max_segments)
        return ReadAllAvailable()

    def stop_at_present(self) -> None:
        """Lets the batches of this run end at the segments that are there now."""
        newest = {}
        for scope in self._landed.scopes():
            numbers = self._landed.lake.numbers(scope)
            newest[scope] = numbers[-1] if numbers else -1
        self._present = newest

    def latest(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch: one segment more of each scope in turn, up to the limits."""
        unlimited = isinstance(limit, ReadAllAvailable)
        most_segments = 0 if unlimited else self._options.max_segments
        most_events = 0 if unlimited else self._options.max_events
        end, pending = dict(start), {}
        if end.setdefault(_LAKE, self._landed.lake.identity) != self._landed.lake.identity:
            raise PipelineRefused(
                f"{self._options.lake}: is the lake {self._landed.lake.identity}, and the query's "
                f"checkpoint is of {end[_LAKE]}: use another checkpoint and other tables for it"
            )
        for scope in _scopes_of(start):
            if start[scope] >= 0:  # also where the scope itself is gone
                self._landed.require_end(scope, start[scope])
        for scope in self._landed.scopes():
            if scope + _BEGIN not in end:
                first_run = not start and scope in self._at_first
                begin = self._landed.begin(scope) if first_run else self._earliest(scope)
                if begin is None:
                    continue
                end |= {scope: begin - 1, scope + _BEGIN: begin, scope + _NEWEST: [0, 0]}
            ahead = most_segments or (_MOST_AHEAD if most_events else None)
            pending[scope] = self._pending(scope, end[scope])[:ahead]
        segments = events = 0
        chosen = dict.fromkeys(pending, 0)
        footers = {scope: self._footers(scope, pending[scope]) for scope in pending}
        while open_ := [scope for scope in pending if chosen[scope] < len(pending[scope])]:
            for scope in open_:
                rows = footers[scope][chosen[scope]].footer.rows
                full = most_segments and segments + 1 > most_segments
                full = full or (most_events and segments and events + rows > most_events)
                if full:
                    return self._ended(end, footers, chosen)
                segments, events = segments + 1, events + rows
                chosen[scope] += 1
        return self._ended(end, footers, chosen)

    def parts(self, start: Offset, end: Offset) -> list[Part]:
        """The parts of a batch."""
        parts: list[Part] = []
        for scope in _scopes_of(end):
            begin = end[scope + _BEGIN]
            after = start[scope] if scope in start else begin - 1
            newest = start.get(scope + _NEWEST, (0, 0))
            numbers = [n for n in self._landed.numbers(scope, after) if n <= end[scope]]
            if end[scope] > after:
                self._landed.require_end(scope, end[scope])
            segments = self._footers(scope, numbers)
            parts += divided(self._landed, self._texts, segments, begin, tuple(newest))
        return parts

    def _earliest(self, scope: str) -> int | None:
        numbers = self._landed.numbers(scope, None)
        return numbers[0] if numbers else None

    def _pending(self, scope: str, after: int) -> Sequence[int]:
        numbers = self._landed.numbers(scope, after)
        if self._present is None:
            return numbers
        last = self._present.get(scope, -1)
        return [number for number in numbers if number <= last]

    def _footers(self, scope: str, numbers: Sequence[int]) -> Sequence[LandedSegment]:
        """The segments with their footers, which the last plan has read already."""
        if not numbers:
            return []
        first, found = self._read.get(scope, (0, []))
        if not first <= numbers[0] <= numbers[-1] < first + len(found):
            first, found = numbers[0], list(read_footers(self._landed.lake, scope, numbers))
            self._read[scope] = first, found
        return found[numbers[0] - first : numbers[-1] - first + 1]

    def _ended(
        self,
        end: Offset,
        footers: Mapping[str, Sequence[LandedSegment]],
        chosen: Mapping[str, int],
    ) -> Offset:
        for scope, count in chosen.items():
            if count:
                read = footers[scope][:count]
                end[scope] = read[-1].footer.segment
                newest = max(tuple(end[scope + _NEWEST]), newest_of(read))
                end[scope + _NEWEST] = list(newest)
        return end


def _scopes_of(offset: Offset) -> list[str]:
    return [key.removesuffix(_BEGIN) for key in offset if key.endswith(_BEGIN)]
