"""Finds landed segments by number, and checks them by their footers.

A missing segment is never skipped: later segments may depend on it, so the pipeline waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from pyarrow import fs

from tailrace.errors import PipelineRefused, SegmentUnreadable, describe
from tailrace.lake import segment_metadata
from tailrace.lake.segment import (
    LAKE_FILE,
    Footer,
    lake_identity,
    segment_name,
    segment_number,
)
from tailrace.pipeline.location import Location

_READERS = 8
"""How many footers are read concurrently: object stores answer slowly."""

_AHEAD = 256
"""How many footers are read ahead: enough to keep an object store busy, few beside a batch."""


@dataclass(frozen=True, slots=True)
class LandedSegment:
    file: Location
    footer: Footer
    floor: int
    """The last ordinal of all earlier segments. Rows at or below it are repetitions."""

    @property
    def repeats(self) -> bool:
        """Whether rows repeat ordinals of this segment or of earlier segments."""
        footer = self.footer
        return footer.rows > footer.last_ordinal - self.floor


@dataclass(frozen=True, slots=True)
class LandedLake:
    """A directory of scopes, and its identity."""

    location: Location
    identity: str

    @classmethod
    def open(cls, location: Location) -> LandedLake:
        """Opens a lake. Raises :class:`PipelineRefused` if this version cannot read one there."""
        file = location / LAKE_FILE
        try:
            with file.files.open_input_stream(file.path) as stream:
                text: bytes = stream.read()
        except FileNotFoundError as error:
            raise PipelineRefused(
                f"{location}: no lake: there is no {LAKE_FILE}. Give the path of a parquet handler "
                "that has landed something"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: no path of this file system
            raise PipelineRefused(f"{location}: cannot be read: {describe(error)}") from error
        try:
            return cls(location, lake_identity(text))
        except (ValueError, RecursionError) as error:
            raise PipelineRefused(f"{file}: is not a lake's: {describe(error)}") from error

    def scopes(self) -> list[str]:
        return [
            name
            for name, is_directory in self.location.names()
            if is_directory and not name.startswith((".", "_"))
        ]

    def numbers(self, scope: str) -> list[int]:
        names = (self.location / scope).names()
        found = (segment_number(name) for name, is_directory in names if not is_directory)
        return sorted(number for number in found if number is not None)

    def present(self, scope: str, numbers: Sequence[int]) -> list[int]:
        """Which of these segments exist. Does not list the whole directory."""
        paths = [self.file(scope, number).path for number in numbers]
        found = self.location.files.get_file_info(paths)
        pairs = zip(numbers, found, strict=True)
        return [number for number, info in pairs if info.type == fs.FileType.File]

    def file(self, scope: str, number: int) -> Location:
        return self.location / scope / segment_name(number)


@dataclass(frozen=True, slots=True)
class Pending:
    """A scope's segments after the committed ones, up to the first ``missing`` number."""

    scope: str
    numbers: tuple[int, ...]
    missing: int | None


def pending(lake: LandedLake, through: Mapping[str, int]) -> list[Pending]:
    """The pending segments by scope, after the last one in the tables (``through``).

    Raises :class:`PipelineRefused` if the lake ends before the tables do.
    """
    by_scope = []
    for scope in lake.scopes():
        committed = through.get(scope, -1)
        numbers = lake.numbers(scope)
        last = max(numbers, default=-1)
        if last < committed:
            raise PipelineRefused(
                f"{lake.location / scope}: its segments end at {last if numbers else 'none'}, but "
                f"the tables hold all through {committed}. A part of the lake was removed or "
                "restored: bring it back, or begin new tables in another directory"
            )
        later = [number for number in numbers if number > committed]
        consecutive = [n for at, n in enumerate(later, committed + 1) if n == at]
        missing = committed + 1 + len(consecutive) if len(consecutive) < len(later) else None
        by_scope.append(Pending(scope, tuple(consecutive), missing))
    return by_scope


def all_segments(lake: LandedLake) -> list[LandedSegment]:
    """Every segment, for a rebuild. Raises :class:`PipelineRefused` if one is missing."""
    landed: list[LandedSegment] = []
    for of_scope in pending(lake, {}):
        if of_scope.missing is not None:
            file = lake.file(of_scope.scope, of_scope.missing)
            raise PipelineRefused(
                f"{file}: is missing, so the tables cannot be "
                "rebuilt from segments. Nothing was changed. Restore it; where retention removed "
                "it, only the tables have its events"
            )
        landed += read_footers(lake, of_scope.scope, of_scope.numbers)
    if not landed:
        raise PipelineRefused(f"{lake.location}: has no segments to rebuild the tables from")
    return landed


def in_batches(segments: Iterable[LandedSegment], events: int) -> Iterator[list[LandedSegment]]:
    """The segments in groups of about this many events."""
    batch: list[LandedSegment] = []
    for segment in segments:
        batch.append(segment)
        if sum(each.footer.rows for each in batch) >= events:
            yield batch
            batch = []
    yield batch


def read_footers(lake: LandedLake, scope: str, numbers: Sequence[int]) -> Iterator[LandedSegment]:
    """Consecutive segments with their footers, each checked against the previous one.

    Raises :class:`SegmentUnreadable` if a segment is damaged, foreign or misplaced.
    """
    if not numbers:
        return
    before = numbers[0] - 1
    floor: int | None = None if numbers[0] else -1
    if numbers[0] and lake.present(scope, [before]):
        floor = read_footer(lake, scope, before).last_ordinal
    for footer in _footers(lake, scope, numbers):
        file = lake.file(scope, footer.segment)
        first, last = footer.first_ordinal, footer.last_ordinal
        if floor is None:  # retention removed the previous segment
            floor = first - 1
        if first > floor + 1 or footer.rows < last - first + 1 or last < floor:
            raise SegmentUnreadable(
                f"{file}: has {footer.rows} events from {first} to {last}, where {floor + 1} comes "
                "next. Nothing was committed. Restore the segment that its scope's daemon wrote"
            )
        yield LandedSegment(file, footer, floor)
        floor = last


def _footers(lake: LandedLake, scope: str, numbers: Sequence[int]) -> Iterator[Footer]:
    with ThreadPoolExecutor(_READERS) as readers:
        for at in range(0, len(numbers), _AHEAD):
            yield from readers.map(partial(read_footer, lake, scope), numbers[at : at + _AHEAD])


def read_footer(lake: LandedLake, scope: str, number: int) -> Footer:
    """The footer of one segment. Raises :class:`SegmentUnreadable`."""
    file = lake.file(scope, number)

    def read_end(last: int) -> bytes:
        with file.files.open_input_file(file.path) as source:
            source.seek(max(source.size() - last, 0))
            end: bytes = source.read()
            return end

    try:
        return segment_metadata.read_footer(
            read_end, where=str(file), lake=lake.identity, scope=scope, number=number
        )
    except OSError as error:
        raise SegmentUnreadable(f"{file}: cannot be read: {describe(error)}") from error
