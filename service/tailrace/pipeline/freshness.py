"""How far tables are behind: the events that are landed and not in them yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.event.cluster_position import BEFORE_ALL, seconds_of
from tailrace.lake.segment import Footer
from tailrace.pipeline import changes
from tailrace.pipeline.schemas import NO_TABLE
from tailrace.pipeline.segments import LandedLake, Pending, pending, read_footer, read_footers
from tailrace.pipeline.tables import DataFile, TableVersion

LOG = "changes"
"""The name of the log among the tables."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Events that are not in a table yet.

    ``oldest``: the cluster time of the first one, in seconds since 1970; ``None`` if none waits, or
    if none has a cluster time.
    """

    events: int = 0
    oldest: int | None = None

    def seconds(self, now: float) -> float:
        """How long the first one has waited."""
        return 0.0 if self.oldest is None else max(0.0, now - self.oldest)


def in_log(files: Iterable[DataFile], through: Mapping[str, int]) -> Waiting:
    """The events of one table in files of the log, after the segments that the table has.

    After a compaction of the log this may count some that the table has.
    """
    news = changes.newer([*files], through)
    positions = (each.low.get("position", BEFORE_ALL) for each in news)
    oldest = min((each for each in positions if each != BEFORE_ALL), default=None)
    return Waiting(sum(each.rows for each in news), None if oldest is None else seconds_of(oldest))


def by_table(log: TableVersion, through: Mapping[str, Mapping[str, int]],
             otherwise: Mapping[str, int]) -> dict[str, Waiting]:  # fmt: skip
    """The waiting events of each collection that the log has.

    ``through``: the last segments that a table has; ``otherwise``: those of all other tables.
    """
    files: dict[str, list[DataFile]] = {}
    for file in log.files:
        files.setdefault(file.partition["table"] or NO_TABLE, []).append(file)
    files.pop(NO_TABLE, None)
    return {name: in_log(found, through.get(name, otherwise)) for name, found in files.items()}


def first_of(lake: LandedLake, found: Iterable[Pending]) -> Waiting:
    """The first segment that the log does not have, by the footer of one segment a scope.

    ``events`` is only that there are some.
    """
    first = [_first_footer(lake, each) for each in found if each.numbers]
    times = [each.cluster_time.time for each in first if each.cluster_time is not None]
    return Waiting(sum(each.rows for each in first), min(times, default=None))


def _first_footer(lake: LandedLake, scope: Pending) -> Footer:
    return read_footer(lake, scope.scope, scope.numbers[0])


@dataclass(frozen=True, slots=True)
class ScopeInLake:
    """A scope's segments: the last landed one, the last one in the log, and what lies between.

    ``missing``: the first number that is not there although later ones are.
    """

    landed: int
    logged: int
    waiting: Waiting
    missing: int | None


def in_lake(lake: LandedLake, log: TableVersion) -> dict[str, ScopeInLake]:
    """How far the log is behind the lake, by scope."""
    by_scope = {}
    for segments in pending(lake, {scope: log.segment(scope) for scope in lake.scopes()}):
        logged = log.segment(segments.scope)
        footers = [each.footer for each in read_footers(lake, segments.scope, segments.numbers)]
        times = [each.cluster_time for each in footers if each.rows and each.cluster_time]
        # Only the time of a segment's last event is known without reading the segment.
        waiting = Waiting(sum(each.rows for each in footers), times[0].time if times else None)
        last = segments.numbers[-1] if segments.numbers else logged
        by_scope[segments.scope] = ScopeInLake(last, logged, waiting, segments.missing)
    return by_scope
