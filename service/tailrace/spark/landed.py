"""The segments of a lake as the data source finds them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyarrow import fs

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake, read_footer
from tailrace.spark.options import LATEST, Options


@dataclass(frozen=True, slots=True)
class LandedFiles:
    options: Options
    lake: LandedLake

    @classmethod
    def open(cls, options: Options) -> LandedFiles:
        """Raises :class:`PipelineRefused` if no lake of this format is there."""
        return cls(options, LandedLake.open(Location.of(options.lake, options.access)))

    def scopes(self) -> list[str]:
        """The scopes to read. Raises :class:`PipelineRefused` if the chosen one is not there."""
        try:
            there = self.lake.scopes()
        except OSError as error:
            raise PipelineRefused(f"{self.lake.location}: {describe(error)}") from error
        if not (chosen := self.options.scope):
            return there
        if chosen not in there:
            known = f"it has {', '.join(there)}" if there else "it has none yet"
            raise PipelineRefused(f"{self.lake.location}: has no scope {chosen!r}: {known}")
        return [chosen]

    def numbers(self, scope: str, after: int | None) -> Sequence[int]:
        """The scope's segments after a number, consecutive; all that are there for ``None``.

        Raises :class:`PipelineRefused` if one is missing.
        """
        numbers = self._from(scope, after)
        if _hole(numbers, after) is not None:
            numbers = self._from(scope, after)  # a directory may change while it is listed
        if (missing := _hole(numbers, after)) is not None:
            raise self._missing(scope, missing)
        return numbers

    def require_end(self, scope: str, last: int) -> None:
        """Raises :class:`PipelineRefused` if the lake ends before what a query has read."""
        if self.lake.numbers(scope)[-1:] < [last]:
            raise PipelineRefused(
                f"{self.lake.file(scope, last)}: is missing, and the query's checkpoint has it. A "
                "part of the lake was removed or restored: bring it back, or start the query with "
                "a new checkpoint, and its tables anew"
            )

    def _from(self, scope: str, after: int | None) -> list[int]:
        numbers = self.lake.numbers(scope)
        return [number for number in numbers if after is None or number > after]

    def _missing(self, scope: str, number: int) -> PipelineRefused:
        file, numbers = self.lake.file(scope, number), self.lake.numbers(scope)
        if number < numbers[0]:
            return PipelineRefused(
                f"{file}: was removed before this query read it: the retention of the lake has "
                f"passed the query's checkpoint, and the first segment is {numbers[0]}. Events are "
                "missing: start the query with a new checkpoint, and its tables anew"
            )
        return PipelineRefused(
            f"{file}: is missing, and later segments are there. Nothing was read beyond it. "
            "Restore it"
        )

    def begin(self, scope: str) -> int:
        """The first segment to read, as ``starting`` says; it may not be there yet."""
        numbers = self.numbers(scope, None)
        if not numbers:
            return 0
        if self.options.starting == LATEST:
            return numbers[-1] + 1
        if (since := self.options.since) is None:
            return numbers[0]

        def time(number: int) -> int:
            at = read_footer(self.lake, scope, number).cluster_time
            return -1 if at is None else at.time

        at = bisect_left(numbers, since, key=time)
        return numbers[at] if at < len(numbers) else numbers[-1] + 1

    def sizes(self, scope: str, numbers: Sequence[int]) -> Mapping[int, int]:
        """The bytes of these segments' files."""
        paths = [self.lake.file(scope, number).path for number in numbers]
        found: Iterable[fs.FileInfo] = self.lake.location.files.get_file_info(paths)
        return {number: info.size or 0 for number, info in zip(numbers, found, strict=True)}


def _hole(numbers: Sequence[int], after: int | None) -> int | None:
    """The first number that is missing between others, or after ``after``."""
    if not numbers:
        return None
    first = numbers[0] if after is None else after + 1
    return next((at for at, found in enumerate(numbers, first) if at != found), None)
