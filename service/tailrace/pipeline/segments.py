"""Finding segments, and believing none that its footer does not vouch for.

Segments are read in the order of their numbers. A number that is missing is waited for and never
skipped: what comes behind it may build upon it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

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
"""Footers read at once: what a store answers is waited for, not computed."""


@dataclass(frozen=True, slots=True)
class LandedSegment:
    """A segment whose footer was read and believed.

    ``floor`` is the last ordinal of all segments before: rows at or below it are repeated.
    """

    file: Location
    footer: Footer
    floor: int

    @property
    def repeats(self) -> bool:
        """Whether rows repeat ordinals inside the segment, or of the segments before."""
        footer = self.footer
        return footer.rows > footer.last_ordinal - self.floor


@dataclass(frozen=True, slots=True)
class LandedLake:
    """A directory of scopes, and its identity."""

    location: Location
    identity: str

    @classmethod
    def open(cls, location: Location) -> LandedLake:
        """Raises :class:`PipelineRefused` where there is no lake that this version can read."""
        try:
            text = (location / LAKE_FILE).read()
        except OSError as error:
            raise PipelineRefused(f"{location}: cannot be read: {describe(error)}") from error
        if text is None:
            raise PipelineRefused(
                f"{location}: no lake: there is no {LAKE_FILE}. Give the path of a parquet handler "
                "that has landed something"
            )
        try:
            return cls(location, lake_identity(text))
        except (ValueError, RecursionError) as error:
            raise PipelineRefused(
                f"{location / LAKE_FILE}: is not a lake's: {describe(error)}"
            ) from error

    def scopes(self) -> list[str]:
        """The scopes that have landed something."""
        return [
            name
            for name, is_directory in self.location.names()
            if is_directory and not name.startswith((".", "_"))
        ]

    def numbers(self, scope: str) -> list[int]:
        """The numbers of a scope's segments, ascending."""
        names = (self.location / scope).names()
        found = (segment_number(name) for name, is_directory in names if not is_directory)
        return sorted(number for number in found if number is not None)

    def present(self, scope: str, numbers: Iterable[int]) -> list[int]:
        """Those of the numbers given that are there; without a list of the whole directory."""
        wanted = list(numbers)
        files = [self.file(scope, number) for number in wanted]
        found = self.location.files.get_file_info([file.path for file in files])
        return [
            number
            for number, info in zip(wanted, found, strict=True)
            if info.type == fs.FileType.File
        ]

    def file(self, scope: str, number: int) -> Location:
        """Where a segment is."""
        return self.location / scope / segment_name(number)


@dataclass(frozen=True, slots=True)
class Pending:
    """What a scope has landed beyond what is committed: ``missing`` ends it, where given."""

    scope: str
    numbers: tuple[int, ...]
    missing: int | None


def pending(lake: LandedLake, through: Mapping[str, int]) -> list[Pending]:
    """The segments behind the committed ones, by scope, up to the first number that is missing.

    Raises :class:`PipelineRefused` where a lake ends before what the tables have.
    """
    found = []
    for scope in lake.scopes():
        committed = through.get(scope, -1)
        numbers = lake.numbers(scope)
        if committed >= 0 and (not numbers or numbers[-1] < committed):
            raise PipelineRefused(
                f"{lake.location / scope}: its segments end at {numbers[-1] if numbers else 'none'}"
                f", but the tables hold all through {committed}. A part of the lake was removed or "
                "restored: bring it back, or begin new tables in another directory"
            )
        later = [number for number in numbers if number > committed]
        count = next(
            (at for at, number in enumerate(later) if number != committed + 1 + at), len(later)
        )
        missing = committed + 1 + count if count < len(later) else None
        found.append(Pending(scope, tuple(later[:count]), missing))
    return found


def read_footers(lake: LandedLake, scope: str, numbers: tuple[int, ...]) -> Iterator[LandedSegment]:
    """The segments with their footers, in order, each checked against the one before.

    Raises :class:`SegmentUnreadable` for a file that is torn, foreign, or of another place.
    """
    if not numbers:
        return
    before: Footer | None = None
    earlier = lake.file(scope, numbers[0] - 1)
    if numbers[0] > 0 and lake.present(scope, [numbers[0] - 1]):
        before = read_footer(earlier, lake, scope, numbers[0] - 1)
    floor = before.last_ordinal if before else (-1 if numbers[0] == 0 else None)
    with ThreadPoolExecutor(_READERS) as readers:
        for footer in readers.map(
            lambda number: read_footer(lake.file(scope, number), lake, scope, number), numbers
        ):
            file = lake.file(scope, footer.segment)
            if floor is None:  # the segments before were removed by retention
                floor = footer.first_ordinal - 1
            span = footer.last_ordinal - footer.first_ordinal + 1
            if (
                footer.first_ordinal > floor + 1
                or footer.rows < span
                or footer.last_ordinal < floor
            ):
                raise SegmentUnreadable(
                    f"{file}: has {footer.rows} events from {footer.first_ordinal} to "
                    f"{footer.last_ordinal}, where {floor + 1} comes next. Nothing was committed. "
                    "Restore the segment that its scope's daemon wrote"
                )
            yield LandedSegment(file, footer, floor)
            floor = footer.last_ordinal


def read_footer(file: Location, lake: LandedLake, scope: str, number: int) -> Footer:
    """The footer of one segment. Raises :class:`SegmentUnreadable`."""

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
