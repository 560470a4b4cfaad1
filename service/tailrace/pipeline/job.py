"""A run of the pipeline: appends batches of segments to the log, and publishes it to tables."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter

from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline import changes, freshness, log_commit, quality, segments
from tailrace.pipeline.auto_columns import AutoColumns
from tailrace.pipeline.declaration import Declaration, declare
from tailrace.pipeline.freshness import LOG, Waiting
from tailrace.pipeline.log_snapshot import (
    CURRENT_STATE,
    HISTORY_STATE,
    LogSnapshot,
    TableKind,
    log_snapshot_of,
    published,
)
from tailrace.pipeline.progress import JobProgress
from tailrace.pipeline.publish import (
    SMALL_TABLE,
    Publication,
    publication_of,
    publish,
    with_new_columns,
)
from tailrace.pipeline.schedule import Schedule
from tailrace.pipeline.segments import LandedLake, LandedSegment
from tailrace.pipeline.shared_job import publish_together
from tailrace.pipeline.table_groups import grouped
from tailrace.pipeline.tables import PUBLISHED, Table, TableStore, TableVersion

_TABLES = 128
"""How many tables are prepared at once: each has its files in memory."""


@dataclass(slots=True)
class Job:
    """One lake, one directory of tables, one writer.

    ``columns``: the declared columns by ``database.collection``; ``None`` keeps the declaration
    that the tables have.
    """

    spark: SparkSession
    lake: LandedLake
    tables: TableStore
    settings: PipelineSettings
    columns: Declaration | None = None
    progress: JobProgress = field(default_factory=JobProgress)
    schedule: Schedule = field(init=False)
    _found: int | None = None
    """The version of the log that this job found, or last counted."""
    _uncounted: set[str] = field(default_factory=set)
    """The tables with new changes since then, which may have been published."""
    _through: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """The last segments of the tables that this job has published."""
    _published_version: int | None = None
    """The version of the log of which this job has published everything."""
    _auto: AutoColumns = field(init=False)
    _latest: TableVersion | None = None
    """The log as this job last read or wrote it."""

    def __post_init__(self) -> None:
        self.schedule = Schedule(self.settings.publish_seconds)
        self._auto = AutoColumns(self.settings.columns_limit)

    @property
    def log(self) -> Table:
        return changes.changes_table(self.tables, self.lake.identity)

    @property
    def _kinds(self) -> list[TableKind]:
        return [CURRENT_STATE, HISTORY_STATE] if self.settings.history else [CURRENT_STATE]

    def rebuild(self) -> None:
        """Rebuilds every table from the segments, in one commit each; `quality` is kept."""
        landed = segments.all_segments(self.lake)
        self.progress.segments = len(landed)
        batches = segments.in_batches(landed, self.settings.batch_events)
        log = self._load()
        self._latest, self.progress.events = log_commit.append(
            self.spark, log, batches, replaced=log.files
        )
        log_snapshot = self._log_snapshot(self._declared(self._latest, rebuild=True), rebuild=True)
        logged = log_snapshot.logged()
        moves = [each.touches(logged) for _, _, each in log_snapshot.statements]
        chosen = [
            (kind, name)
            for kind in self._kinds
            for name in sorted((log_snapshot.existing(kind) | logged).union(*moves))
        ]
        log_snapshot = self._auto.recorded(log_snapshot, chosen)
        self._publish_all(chosen, log_snapshot)
        self._count(self._published(log_snapshot))

    def finish(self) -> None:
        log = self._load()
        if self.settings.publish_at_end:
            log = self._publish(log, everything=True)
        self._count(log)

    def count(self) -> None:
        """Counts in `quality` what is not counted yet."""
        self._count(self._load())

    def _count(self, log: TableVersion) -> None:
        if log.exists:
            with self.progress.doing("count"):
                self._record(log)

    def _record(self, log: TableVersion) -> None:
        self.progress.set_aside += quality.record(
            self.lake, self.tables, log, self.scopes(log), self._uncounted, since=self._found
        )
        self._found, self._uncounted = log.version, set()

    def catch_up(self) -> None:
        """Publishes what an earlier run left unpublished.

        Statements that move documents between tables are always published, because they need both
        tables at the same position.
        """
        self.publish(everything=self.settings.publish_at_end)

    def publish(self, *, everything: bool) -> None:
        """Publishes the collections with new changes: all, or only those that are due."""
        self._publish(self._load(), everything=everything)

    def step(self) -> bool:
        """Appends one batch to the log, and publishes the tables that are due; False: no batch."""
        done = self.progress
        with done.doing("read"):
            log = self._load()
            batch = list(self._batch(log))
        if not batch:
            return False
        with done.doing("changes"):
            self._latest, events = log_commit.append(self.spark, log, [batch])
        done.events += events
        done.batches += 1
        done.segments += len(batch)
        self._count(self._publish(self._latest, everything=False))
        return True

    def scopes(self, snapshot: TableVersion) -> tuple[str, ...]:
        """The scopes of the lake, and those that the tables know."""
        known = (published(snapshot, kind) for kind in (CURRENT_STATE, HISTORY_STATE))
        return tuple(sorted(set(self.lake.scopes()).union(*known)))

    def _publish(self, log: TableVersion, *, everything: bool) -> TableVersion:
        """As :meth:`publish`; returns the log after it."""
        with self.progress.doing("publish"):
            log = self._publish_due(log, everything=everything)
        waiting = freshness.by_table(log, self._through, published(log, CURRENT_STATE))
        self.progress.waiting = {LOG: self.progress.waiting.get(LOG, Waiting()), **waiting}
        return log

    def _publish_due(self, log: TableVersion, *, everything: bool) -> TableVersion:
        if log.version == self._published_version:
            self.schedule.published_some()
            return log
        log = self._declared(log)
        if not log.exists:
            return log
        log_snapshot = self._log_snapshot(log)
        candidates, moved = log_snapshot.candidates(self._kinds)
        everything = everything or moved or self.settings.publish_ratio == 0
        timed = self.schedule.is_due()
        if not (everything or self.schedule.all_are_due()):
            due = [each for each in candidates if self._is_due(*each, log_snapshot, timed=timed)]
            if len(due) < len(candidates):
                log_snapshot = self._auto.recorded(log_snapshot, due)
                self._publish_all(due, log_snapshot)
                if timed:
                    self.schedule.published_some()
                self._latest = log_snapshot.log
                return self._latest
        began = time.monotonic()
        log_snapshot = self._auto.recorded(log_snapshot, candidates)
        self._publish_all(candidates, log_snapshot)
        self.schedule.published_all(began)
        log = self._published(log_snapshot)
        self._published_version = log.version
        return log

    def _published(self, log_snapshot: LogSnapshot) -> TableVersion:
        """The log, after recording in it that everything up to here is published in these kinds."""
        log = log_snapshot.log
        through = {kind.name: log_snapshot.through() for kind in self._kinds}
        self._latest = log.set_properties({PUBLISHED: {**log.property(PUBLISHED), **through}})
        return self._latest

    def forget(self) -> None:
        """After a failure: reads everything again at the next step."""
        self._latest = self._published_version = None

    def _load(self) -> TableVersion:
        """The log as committed now."""
        self._latest = self._latest.latest() if self._latest else self.log.load()
        if self._found is None:
            self._found = self._latest.version
        return self._latest

    def _log_snapshot(self, log: TableVersion, *, rebuild: bool = False) -> LogSnapshot:
        return log_snapshot_of(
            self.spark, self.tables, log, self.scopes(log), self._kinds, rebuild=rebuild
        )

    def _declared(self, log: TableVersion, *, rebuild: bool = False) -> TableVersion:
        """The log, after declaring the columns in it and in the tables."""
        if self.columns is None or not log.exists:
            return log
        self._latest = declare(log, self.columns, rebuild=rebuild)
        return self._latest

    def _batch(self, log: TableVersion) -> Iterator[LandedSegment]:
        """The next segments of each scope: up to its share of the events, but at least one."""
        through = {scope: log.segment(scope) for scope in self.scopes(log)}
        waiting = segments.pending(self.lake, through)
        self.progress.looked_at = time.time()
        self.progress.missing = {p.scope: p.missing for p in waiting if p.missing is not None}
        self.progress.segments_left = sum(len(of_scope.numbers) for of_scope in waiting)
        self.progress.waiting = {
            **self.progress.waiting,
            LOG: freshness.first_of(self.lake, waiting),
        }
        share = max(1, self.settings.batch_events // max(1, sum(bool(p.numbers) for p in waiting)))
        for of_scope in waiting:
            events = 0
            for segment in segments.read_footers(self.lake, of_scope.scope, of_scope.numbers):
                if events and events + segment.footer.rows > share:
                    break
                events += segment.footer.rows
                yield segment

    def _is_due(
        self, kind: TableKind, name: str, log_snapshot: LogSnapshot, *, timed: bool
    ) -> bool:
        """Whether the waiting changes exceed ``publish_ratio`` of the documents, or the time has
        come and the table is small."""
        snapshot = kind.table(self.tables, self.lake.identity, name).load()
        opened = kind.open_files(snapshot)
        if timed and sum(each.size for each in opened) < SMALL_TABLE:
            return True
        through = {scope: snapshot.segment(scope) for scope in log_snapshot.scopes}
        waiting = sum(each.rows for each in changes.newer(log_snapshot.of(name), through))
        return waiting > sum(each.rows for each in opened) * self.settings.publish_ratio

    def _publish_all(self, chosen: list[tuple[TableKind, str]], log_snapshot: LogSnapshot) -> None:
        self.progress.tables_done, self.progress.tables_left = 0, len(chosen)
        chosen = sorted(chosen, key=itemgetter(1))  # both tables of a collection at once
        with ThreadPoolExecutor(self.settings.parallel_collections, "publish") as threads:
            for begin in range(0, len(chosen), _TABLES):
                self._publish_some(chosen[begin : begin + _TABLES], log_snapshot, threads)
        for kind, name in chosen:
            known = log_snapshot.completeness(name)
            if kind is CURRENT_STATE and not known.complete:
                self.progress.incomplete[name] = known.record()

    def _publish_some(
        self, chosen: list[tuple[TableKind, str]], log_snapshot: LogSnapshot, threads: Executor
    ) -> None:
        def prepared(each: tuple[TableKind, str]) -> Publication:
            return with_new_columns(publication_of(*each, log_snapshot), log_snapshot)

        publications = list(threads.map(prepared, chosen))
        for work in publications:
            if not work.is_needed:
                self._has_published(work, log_snapshot)
        groups, alone = grouped([work for work in publications if work.is_needed], log_snapshot)
        for group in groups:
            works = [work for shared in group for work in shared.works]
            if not publish_together(group, log_snapshot, threads):
                alone += works
                continue
            for work in works:
                self._has_published(work, log_snapshot)
        done = threads.map(lambda work: publish(work, log_snapshot), alone)
        for work, _ in zip(alone, done, strict=True):
            self._has_published(work, log_snapshot)

    def _has_published(self, work: Publication, log_snapshot: LogSnapshot) -> None:
        """Notes that a table has everything in the log."""
        self.progress.published += work.is_needed
        self.progress.tables_done += 1
        self.progress.tables_left -= 1
        if work.kind is CURRENT_STATE:
            self._uncounted.add(work.target.name)
            self._through[work.target.name] = log_snapshot.through()
