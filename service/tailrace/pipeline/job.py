"""A run of the pipeline: batches of segments into the log, and the log into tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from tailrace.pipeline import changes, quality
from tailrace.pipeline.columns import COLUMNS
from tailrace.pipeline.delta import Snapshot, set_published
from tailrace.pipeline.location import Location
from tailrace.pipeline.log_snapshot import (
    CURRENT_STATE,
    HISTORY_STATE,
    LogSnapshot,
    TableKind,
    log_snapshot_of,
)
from tailrace.pipeline.names import NO_TABLE, table_name
from tailrace.pipeline.publish import publish
from tailrace.pipeline.rebuild import rebuild_log, segments_of
from tailrace.pipeline.segments import LandedLake, LandedSegment, Pending, pending, read_footers


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How much is done at once, and how fresh the tables are kept."""

    batch_events: int = 2_000_000
    """Events of a batch, about: what Spark sorts and writes at once."""

    publish_ratio: float = 0.0
    """A collection is published once so many of its events wait, as a part of its documents.
    0 publishes after every batch; 0.2 keeps the cost of an event the same at any table size."""

    publish_seconds: float = 60.0
    """The longest that events wait for that while the pipeline runs."""

    publish_at_end: bool = True
    """Whether a run publishes all that waits, at its end and that of a run before at its start."""

    history: bool = True
    """Whether ``history`` is kept."""

    columns: Mapping[str, Mapping[str, str]] | None = None
    """The columns to declare, by ``database.collection``; ``None`` keeps what is declared."""

    parallel: int = 2
    """Collections published at once."""


@dataclass(slots=True)
class Progress:
    """What a run has done so far."""

    batches: int = 0
    segments: int = 0
    events: int = 0
    published: int = 0
    set_aside: int = 0
    """Events that no table can follow: they are in the log, and counted in `quality`."""
    missing: dict[str, int] = field(default_factory=dict)
    incomplete: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Tables that lack documents which were there before: what is known of each
    (:mod:`tailrace.pipeline.completeness`)."""


class Job:
    """One lake, one directory of tables, one writer."""

    def __init__(
        self,
        spark: SparkSession,
        lake: LandedLake,
        tables: Location,
        settings: JobSettings | None = None,
        report: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.spark = spark
        self.lake = lake
        self.tables = tables
        self.settings = settings or JobSettings()
        self.log = changes.changes_table(tables, lake.identity)
        self.progress = Progress()
        self._report = report
        self._published_at = time.monotonic()
        self._counted = -1

    @property
    def _all_the_time(self) -> bool:
        return self.settings.publish_ratio == 0

    def run_once(self) -> Progress:
        """Brings every table to the end of what has landed."""
        self.catch_up()
        while self.step():
            pass
        self.finish()
        return self.progress

    def rebuild(self) -> Progress:
        """Every table anew from the segments; what it counts stays as it was counted."""
        segments = segments_of(self.lake)
        self.progress.segments = len(segments)
        self.progress.events = rebuild_log(
            self.spark, self.log, segments, self.settings.batch_events
        )
        log = self._declared()
        log_snapshot = log_snapshot_of(
            self.spark, self.tables, log, self.scopes(log), self._kinds(), afresh=True
        )
        logged = log_snapshot.logged()
        for kind in self._kinds():
            there = log_snapshot.existing(kind)
            moves = (each.touches(logged) for _, _, each in log_snapshot.statements)
            names = (there | logged).union(*moves)
            self._publish_all([(kind, name) for name in sorted(names)], log_snapshot, afresh=True)
        set_published(self.log, log_snapshot.through())
        self.count()
        return self.progress

    def finish(self) -> None:
        """The end of a run: publishes all, where that is wanted, and counts."""
        if self.settings.publish_at_end:
            self.publish(everything=True)
        self.count()

    def count(self) -> None:
        """Brings the table of counts to the end of the log."""
        log = self.log.load()
        if not log.exists:
            return
        names: list[str] = []
        if self._counted != self.progress.published:  # else no table has anything new to tell
            names = [name for name, _ in (self.tables / CURRENT_STATE.name).names()]
        self.progress.set_aside += quality.record(
            self.spark, self.lake, self.tables, log, self.scopes(log), names
        )
        self._counted = self.progress.published

    def catch_up(self) -> None:
        """Publishes what a run before has left. Statements that move documents between tables are
        published in any case, before anything is added: they want both ends at the same place."""
        self.publish(everything=self._all_the_time or self.settings.publish_at_end)

    def step(self) -> bool:
        """One batch, if there is one: into the log, and into the tables that have waited enough."""
        batch = list(self._batch())
        if not batch:
            return False
        snapshot = self.log.load()
        events = changes.append(self.spark, snapshot, batch)
        self.progress.batches += 1
        self.progress.segments += len(batch)
        self.progress.events += events
        due = time.monotonic() - self._published_at >= self.settings.publish_seconds
        self.publish(everything=due or self._all_the_time)
        self.count()
        self._report(self)
        return True

    def publish_due(self) -> None:
        """Publishes what has waited long enough."""
        if time.monotonic() - self._published_at >= self.settings.publish_seconds:
            self.publish(everything=True)

    def scopes(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Those of the lake, and those that the tables know."""
        return tuple(sorted({*self.lake.scopes(), *snapshot.published()}))

    def publish(self, *, everything: bool) -> None:
        """Publishes the collections that have news: all, or those with enough of them."""
        log = self._declared()
        if not log.exists:
            return
        log_snapshot = log_snapshot_of(
            self.spark, self.tables, log, self.scopes(log), self._kinds()
        )
        candidates, moved = self._candidates(log_snapshot)
        if not everything and not moved:
            enough = [each for each in candidates if self._has_waited(*each, log_snapshot)]
            if len(enough) < len(candidates):
                self._publish_all(enough, log_snapshot)
                return
        self._publish_all(candidates, log_snapshot)
        set_published(self.log, log_snapshot.through())
        self._published_at = time.monotonic()

    def _declared(self) -> Snapshot:
        """The log, which holds the declared columns: views and counts take them from there."""
        log = self.log.load()
        if self.settings.columns is not None:
            columns = {
                table_name(database, collection): dict(paths)
                for name, paths in self.settings.columns.items()
                for database, _, collection in [name.partition(".")]
            }
            if log.set_property(COLUMNS, columns):
                log = self.log.load()
        return log

    def _batch(self) -> Iterator[LandedSegment]:
        snapshot = self.log.load()
        through = {scope: snapshot.segment(scope) for scope in self.scopes(snapshot)}
        found = pending(self.lake, through)
        self.progress.missing = {p.scope: p.missing for p in found if p.missing is not None}
        share = max(1, self.settings.batch_events // max(1, sum(bool(p.numbers) for p in found)))
        for each in found:
            yield from self._share(each, share)

    def _share(self, waiting: Pending, share: int) -> Iterator[LandedSegment]:
        """A scope's next segments, up to so many events, and at least one."""
        events = 0
        for at in range(0, len(waiting.numbers), _FOOTERS):
            for segment in read_footers(
                self.lake, waiting.scope, waiting.numbers[at : at + _FOOTERS]
            ):
                if events and events + segment.footer.rows > share:
                    return
                events += segment.footer.rows
                yield segment

    def _kinds(self) -> list[TableKind]:
        return [CURRENT_STATE, HISTORY_STATE] if self.settings.history else [CURRENT_STATE]

    def _candidates(self, log_snapshot: LogSnapshot) -> tuple[list[tuple[TableKind, str]], bool]:
        """The tables to publish; and whether a statement wants that all of it is done now."""
        candidates = []
        moved = False
        for kind in self._kinds():
            there, logged = log_snapshot.existing(kind), log_snapshot.logged()
            through = log_snapshot.settled[kind.name]
            fresh = [s for scope, at, s in log_snapshot.statements if at > through.get(scope, -1)]
            news = changes.newer(log_snapshot.log.files, through)
            wanted = {each.partition["table"] or NO_TABLE for each in news} - {NO_TABLE}
            wanted |= (logged - there).union(*(each.touches(there | logged) for each in fresh))
            candidates += [(kind, name) for name in sorted(wanted)]
            moved = moved or bool(fresh)
        return candidates, moved

    def _has_waited(self, kind: TableKind, name: str, log_snapshot: LogSnapshot) -> bool:
        snapshot = kind.table(self.tables, self.lake.identity, name).load()
        through = {scope: snapshot.segment(scope) for scope in log_snapshot.scopes}
        waiting = sum(each.rows for each in changes.newer(log_snapshot.of(name), through))
        documents = sum(each.rows for each in kind.open_files(snapshot))
        return waiting > documents * self.settings.publish_ratio

    def _publish_all(
        self,
        chosen: list[tuple[TableKind, str]],
        log_snapshot: LogSnapshot,
        *,
        afresh: bool = False,
    ) -> None:
        with ThreadPoolExecutor(self.settings.parallel, "publish") as threads:
            done = threads.map(
                lambda each: publish(each[0], each[1], log_snapshot, afresh=afresh), chosen
            )
            self.progress.published += sum(done)
        for kind, name in chosen:
            if kind is CURRENT_STATE and not (whole := log_snapshot.completeness.of(name)).complete:
                self.progress.incomplete[name] = whole.record()


_FOOTERS = 256
"""Footers read ahead: enough to keep a store busy, few beside a batch."""
