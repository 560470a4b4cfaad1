"""Divides segments into the parts that Spark's tasks read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.pipeline.segments import LandedSegment, read_footers
from tailrace.spark.landed import LandedFiles
from tailrace.spark.options import Options

PART_BYTES = 16 * 1024 * 1024
"""A part has about so many bytes of files, which are compressed to about a tenth."""

Part = dict[str, Any]
"""A :class:`Segments` as plain values: Spark's processes may lack our classes."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Consecutive segments of a scope that one task reads.

    ``options``: as Spark gives them. ``lake``: its identity. ``rows``: those of each segment from
    ``first`` on. ``floors``: by segment with repeated rows, the last ordinal of those before.
    ``gaps``: by segment, the document of the gap before it. ``begin``: the first segment that the
    query read. ``newest``: the greatest cluster time of all earlier ones (seconds, increment).
    """

    options: Mapping[str, str]
    lake: str
    scope: str
    first: int
    rows: Sequence[int]
    floors: Mapping[int, int]
    gaps: Mapping[int, Mapping[str, Any]]
    begin: int
    newest: tuple[int, int]

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.rows))


def whole_lake(texts: Mapping[str, str]) -> list[Part]:
    """What a query that is no stream reads: from ``starting`` to the newest segments."""
    landed = LandedFiles.open(Options.of(texts))
    parts: list[Part] = []
    for scope in landed.scopes():
        begin = landed.begin(scope)
        numbers = landed.numbers(scope, begin - 1)
        parts += divided(
            landed, texts, list(read_footers(landed.lake, scope, numbers)), begin, (0, 0)
        )
    return parts


def divided(
    landed: LandedFiles,
    texts: Mapping[str, str],
    segments: Sequence[LandedSegment],
    begin: int,
    newest: tuple[int, int],
) -> list[Part]:
    """Consecutive segments of a scope in parts of about the same size."""
    if not segments:
        return []
    scope = segments[0].footer.scope
    sizes = landed.sizes(scope, [each.footer.segment for each in segments])
    parts: list[Part] = []
    group: list[LandedSegment] = []
    size = 0
    before = newest
    for segment in segments:
        group.append(segment)
        size += sizes[segment.footer.segment] if segment.footer.rows else 0
        if size >= PART_BYTES:
            parts += _part(landed, texts, group, begin, before)
            before = max(before, newest_of(group))
            group, size = [], 0
    return parts + _part(landed, texts, group, begin, before)


def newest_of(segments: Iterable[LandedSegment]) -> tuple[int, int]:
    """The greatest cluster time with which a segment ends."""
    times = (each.footer.cluster_time for each in segments)
    return max(((at.time, at.inc) for at in times if at is not None), default=(0, 0))


def _part(
    landed: LandedFiles,
    texts: Mapping[str, str],
    group: Sequence[LandedSegment],
    begin: int,
    newest: tuple[int, int],
) -> list[Part]:
    footers = [each.footer for each in group]
    if not any(each.rows or each.gap for each in footers):
        return []
    segments = Segments(
        options=texts,
        lake=landed.lake.identity,
        scope=footers[0].scope,
        first=footers[0].segment,
        rows=[each.rows for each in footers],
        floors={each.footer.segment: each.floor for each in group if each.repeats},
        gaps={each.segment: each.gap for each in footers if each.gap is not None},
        begin=begin,
        newest=newest,
    )
    return [asdict(segments)]
