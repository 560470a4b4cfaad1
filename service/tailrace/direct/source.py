"""The data source as Spark calls it, in processes of its own that import this module.

The reader is the simple one of two kinds: Spark asks it for rows and their end at once, in one
process beside the driver. The other kind plans ranges of offsets first and reads them in tasks; of
a change stream the end of a range is known only once it has been read, so every event would be
read twice, and there would still be one task.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from bson.timestamp import Timestamp
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tailrace.direct.follower import Follower
from tailrace.direct.offset import Offset
from tailrace.direct.options import Following, following
from tailrace.direct.rows import SCHEMA, rows
from tailrace.errors import ConfigurationError, Problem, TailraceError
from tailrace.model.start import NOW


@contextmanager
def _plainly() -> Iterator[None]:
    """Spark shows the traceback of an error and of all its causes; of ours the message does."""
    try:
        yield
    except TailraceError as error:
        raise error.with_traceback(None) from None


class TailraceSource(DataSource):
    """``format("tailrace")``: the changes of one scope, as rows with the columns of ``changes``.

    Registered by ``spark.dataSource.register(TailraceSource)``. What the options say that cannot
    be is a :class:`ConfigurationError` at ``load()``.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` calls it."""
        return "tailrace"

    def schema(self) -> StructType:
        """The columns; called by ``load()``, so the options are checked here."""
        with _plainly():
            following(self.options)
        return SCHEMA

    def simpleStreamReader(self, schema: StructType) -> ChangeStreamReader:  # noqa: N802
        """For ``readStream``."""
        return ChangeStreamReader(self._following(schema))

    def reader(self, schema: StructType) -> ChangeReader:
        """For ``read``: what has happened from ``startAt`` until now."""
        chosen = self._following(schema)
        if chosen.start == NOW:
            raise ConfigurationError(
                Problem("startAt", "a batch read ends now: give a time or a token to begin at")
            )
        return ChangeReader(chosen)

    def _following(self, schema: StructType) -> Following:
        if schema.names != SCHEMA.names:
            raise ConfigurationError(
                Problem("schema", "the columns are fixed: leave schema() out, and select() some")
            )
        with _plainly():
            return following(self.options)


class ChangeStreamReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what a trigger takes. The first offset is a constant, for Spark does not store it."""

    def __init__(self, chosen: Following) -> None:
        self._following = chosen
        self._follower = Follower(chosen)
        self._until: Timestamp | None = None
        self._reached = False
        self._moved = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins.

        For "now" it is no place yet: the first batch, without rows, finds one.
        """
        return Offset(0, self._following.start).to_record()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Notes the time beyond which nothing is read."""
        with _plainly():
            self._until = self._follower.now()

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        """Rows and the offset behind them; the same offset where nothing is to be stored."""
        if self._until is not None and self._reached:
            return iter(()), start
        with _plainly():
            offset = Offset.from_record(start)
            taken = self._follower.take(offset, self._until)
        self._reached = taken.reached
        if not taken.events and taken.reached and self._rests(offset):
            return iter(()), start
        self._moved = time.monotonic()
        # A list's iterator: Spark copies it before it reads it.
        return iter(list(self._rows(taken.events, offset))), taken.end.to_record()

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[Any]:
        """The rows of a batch that a query was stopped in, once more, in an executor."""
        with _plainly():
            begin = Offset.from_record(start)
            events = self._follower.again(begin, Offset.from_record(end))
        return self._rows(events, begin)

    def _rests(self, offset: Offset) -> bool:
        """Whether a stream without events may stay where it is for now."""
        idle = time.monotonic() - self._moved
        return offset.start != NOW and idle < self._following.limits.idle_seconds

    def _rows(self, events: list[bytes], begin: Offset) -> Iterator[pa.RecordBatch]:
        return rows(events, self._following.scope.name, begin.ordinal)


@dataclass(frozen=True)
class _UntilNow(InputPartition):
    """The one task of a batch read; when it is tried again it reads the same."""

    until: Timestamp


class ChangeReader(DataSourceReader):
    """Reads from the start to the time at which the read was planned, in one task."""

    def __init__(self, chosen: Following) -> None:
        self._following = chosen

    def partitions(self) -> list[InputPartition]:
        """One: a stream has one order."""
        with _plainly():
            return [_UntilNow(Follower(self._following).now())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Batches of Arrow, a trigger's share at a time."""
        assert isinstance(partition, _UntilNow)  # noqa: S101 - for the type checker
        follower = Follower(self._following)
        offset = Offset(0, self._following.start)
        while True:
            with _plainly():
                taken = follower.take(offset, partition.until)
            yield from rows(taken.events, self._following.scope.name, offset.ordinal)
            if taken.reached:
                return
            offset = taken.end
