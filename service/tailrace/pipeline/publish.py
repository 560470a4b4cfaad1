"""Publishing: brings the tables ``current`` and ``history`` of a collection to the end of the log.

Each publication is one commit, which records the last segment of each scope in the table. It
rewrites only files with a changed key, so the cost of inserts does not grow with the table. If the
collection was dropped or renamed, it rewrites all files with open versions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tailrace.event.cluster_position import BEFORE_ALL
from tailrace.pipeline import changes, files, spark_files
from tailrace.pipeline.completeness import COMPLETE
from tailrace.pipeline.lineage import Statement, connected, routes
from tailrace.pipeline.log_snapshot import CURRENT_STATE, LogSnapshot, TableKind
from tailrace.pipeline.observed_counts import observed, record_of
from tailrace.pipeline.table_schema import TableSchema
from tailrace.pipeline.tables import PUBLISHED, DataFile, Table, TableVersion
from tailrace.pipeline.typed_columns import (
    Columns,
    RescuedField,
    evaluated,
    rescued,
    schema_with,
    selected,
    stored_columns,
    stored_fields,
)
from tailrace.pipeline.versions import KNOWN, NEW, intervals, of_events, of_open, versions

_FEW = 500_000
"""Up to this many changed keys are sent to every executor, so that the table is not shuffled."""

SMALL_TABLE = 16 * 2**20
"""A table below this many bytes is rewritten whole: finding its unchanged files would cost more."""

_SMALL_FILES = 16
"""Of more small files of a table, a publication merges all."""


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table before the publication, and the events after it."""

    name: str
    snapshot: TableVersion
    through: Mapping[str, int]
    news: Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class Publication:
    """Everything on which a table's next state depends."""

    kind: TableKind
    target: TableInput
    sources: Sequence[TableInput]
    statements: Sequence[Statement]
    """Statements, which affect every document of a table and not only those that events name."""
    first: int
    columns: Columns
    """The typed columns that the table has after it."""
    rebuild: bool

    @property
    def schema(self) -> TableSchema:
        return schema_with(self.kind.schema, self.columns)

    @property
    def is_needed(self) -> bool:
        return bool(self.rebuild or self.target.news or self.statements)

    @property
    def is_partial(self) -> bool:
        """Whether there are events without an image, which are applied to what was there."""
        return not {each.low.get("image", "present") for each in self._news} <= {"present"}

    @property
    def has_deletions(self) -> bool:
        """Whether there may be deletions. No event of a document has a lesser operation."""
        return any(each.low.get("operation", "delete") <= "delete" for each in self._news)

    @property
    def has_moves(self) -> bool:
        """Whether there may be events of a sharded collection."""
        return any("key_after" in each.low or not each.low for each in self._news)

    @property
    def _news(self) -> Iterator[DataFile]:
        return (each for source in self.sources for each in source.news)


def publication_of(kind: TableKind, name: str, log_snapshot: LogSnapshot) -> Publication:
    """The input of one table's publication. A rebuild ignores the table's present content."""
    columns = log_snapshot.columns(name)
    table = kind.table(log_snapshot.tables, log_snapshot.log.table.lake, name, columns)
    settled = log_snapshot.settled[kind.name]
    target = _source(name, table.load(), log_snapshot, settled)
    if not log_snapshot.rebuild:
        rescued_fields = {n: each for n, each in columns.items() if isinstance(each, RescuedField)}
        columns = {**stored_columns(target.snapshot.table.schema), **rescued_fields}
    first = changes.first_position(target.news)
    statements = [
        statement
        for scope, segment, statement in log_snapshot.statements
        if segment > target.through[scope] or statement.at >= first
    ]
    names = connected(name, statements)
    statements = [each for each in statements if any(each.concerns(member) for member in names)]
    sources = [target]
    for member in sorted(names - {name}):
        other = kind.table(log_snapshot.tables, log_snapshot.log.table.lake, member)
        absent = other.store.absent(other)
        before = absent if log_snapshot.rebuild else _as_of(other, target.through)
        sources.append(_source(member, before, log_snapshot, settled))
    first = changes.first_position(each for source in sources for each in source.news)
    return Publication(kind, target, sources, statements, first, columns, log_snapshot.rebuild)


def with_new_columns(work: Publication, log_snapshot: LogSnapshot) -> Publication:
    """The publication, after adding to its table the columns that appeared with its events."""
    wanted, names = log_snapshot.columns(work.target.name), {each.lower() for each in work.columns}
    new = {name: each for name, each in wanted.items() if name.lower() not in names}
    if not (work.is_needed and stored_fields(new)):
        return work
    target = replace(work.target, snapshot=work.target.snapshot.add_columns(stored_fields(new)))
    return replace(
        work, target=target, sources=[target, *work.sources[1:]], columns={**work.columns, **new}
    )


def _source(
    name: str, snapshot: TableVersion, log_snapshot: LogSnapshot, settled: Mapping[str, int]
) -> TableInput:
    logged = log_snapshot.of(name)
    if snapshot.exists and not log_snapshot.rebuild:
        through = {scope: snapshot.segment(scope) for scope in log_snapshot.scopes}
    elif len(changes.newer(logged, settled)) == len(logged):  # no event of it is published yet
        through = {scope: settled.get(scope, -1) for scope in log_snapshot.scopes}
    else:
        through = dict.fromkeys(log_snapshot.scopes, -1)
    return TableInput(name, snapshot, through, changes.newer(logged, through))


def _as_of(table: Table, through: Mapping[str, int]) -> TableVersion:
    """The table as of these segments: its last version, or an earlier one after a crash."""
    snapshot = table.load()
    while any(snapshot.segment(scope) > segment for scope, segment in through.items()):
        if snapshot.version == 0:
            return table.store.absent(table)
        snapshot = table.load(snapshot.version - 1)
    return snapshot


def publish(work: Publication, log_snapshot: LogSnapshot) -> None:
    """Brings one table to the end of the log."""
    target = work.target
    metrics = Observation(work.kind.name)
    rows, replaced = next_state(work, log_snapshot, metrics)
    read = [each for source in work.sources for each in [*source.news, *replaced]]
    parallel = log_snapshot.spark.sparkContext.defaultParallelism
    rows = rows.coalesce(min(parallel, files.count_for(read)))
    adds = spark_files.write(rows, target.snapshot.table)
    commit(work, log_snapshot, adds, replaced, record_of(metrics.get))


def commit(
    work: Publication,
    log_snapshot: LogSnapshot,
    adds: Sequence[DataFile],
    replaced: Sequence[DataFile],
    counts: Mapping[str, Any],
) -> None:
    """Commits a table's next state, with its counts."""
    target = work.target
    complete = log_snapshot.completeness(target.name).record()
    through = log_snapshot.through()
    counted = {"through": through, "since": target.through, "complete": complete, **counts}
    schema = work.schema if log_snapshot.rebuild else None
    done = target.snapshot.commit(adds, replaced, segments=through, metrics=counted, schema=schema)
    done.set_properties({PUBLISHED: through, COMPLETE: complete})


def merged(kind: TableKind, name: str, log_snapshot: LogSnapshot) -> DataFrame:
    """The rows that a table would have if it were published now."""
    work = publication_of(kind, name, log_snapshot)
    snapshot = work.target.snapshot
    if not work.is_needed:
        return spark_files.read_table(log_snapshot.spark, snapshot.table, snapshot.files)
    rows, replaced = next_state(work, log_snapshot)
    gone = {each.path for each in replaced}
    kept = [each for each in snapshot.files if each.path not in gone]
    return rows.unionAll(spark_files.read_table(log_snapshot.spark, snapshot.table, kept))


def next_state(
    work: Publication, log_snapshot: LogSnapshot, metrics: Observation | None = None
) -> tuple[DataFrame, list[DataFile]]:
    """The rows to write for a table, and the files that they replace."""
    kind, target, spark = work.kind, work.target, log_snapshot.spark
    table = target.snapshot.table
    sources = () if log_snapshot.rebuild else work.sources
    opened = {source.name: kind.open_files(source.snapshot) for source in sources}
    parts = _events(work, log_snapshot)
    replaced = opened.get(target.name, [])
    rest = None
    if work.statements or sum(each.size for each in replaced) < SMALL_TABLE:
        parts += [
            of_open(
                spark_files.read(spark, source.snapshot.table, opened[source.name]),
                f"'{source.name}'",
            )
            for source in sources
            if opened[source.name]
        ]
    else:
        keys = reduce(DataFrame.unionAll, parts).where(f"stage = {NEW}").select("key").distinct()
        if sum(each.rows for each in target.news) <= _FEW:
            keys = F.broadcast(keys)
        replaced = _touched(spark, table, replaced, keys)
        if replaced:
            base = spark_files.read_table(spark, table, replaced)
            parts.append(of_open(base.join(keys, "key", "left_semi"), f"'{target.name}'"))
            rest = base.join(keys, "key", "left_anti")
    ways = routes((source.name for source in work.sources), work.statements)
    sequence = reduce(DataFrame.unionAll, parts)
    scopes = {each.partition["scope"] for source in work.sources for each in source.news}
    known = [each for source in work.sources for each in known_files(work, source, log_snapshot)]
    scopes |= {each.partition["scope"] for each in known}
    made = versions(
        sequence,
        ways,
        partial=work.is_partial,
        shared=len(scopes) > 1,
        deletions=work.has_deletions,
        moves=work.has_moves,
    )
    made = evaluated(made, "IF(live AND NOT gone, document, NULL)", work.columns)
    if metrics is not None:
        # Only for `current`, which is always published, so that each value is counted once.
        made = observed(made, metrics, work.columns if kind is CURRENT_STATE else {})
    rows = intervals(made, target.name, [*selected(work.columns), rescued(work.columns)])
    if kind is CURRENT_STATE:
        rows = rows.where("is_current")
    names = spark_files.quoted(work.schema)
    rows = rows.select(*names)
    if rest is not None:
        rows = rows.unionAll(rest.select(*names))
    return rows, replaced


def _events(work: Publication, log_snapshot: LogSnapshot) -> list[DataFrame]:
    """The new events, and the published events that they may repeat."""

    def read(chosen: Sequence[DataFile]) -> DataFrame:
        return spark_files.read_table(log_snapshot.spark, log_snapshot.log.table, chosen)

    parts = []
    for source in work.sources:
        is_new = F.expr(changes.after(source.through))
        if source.news:
            parts.append(of_events(read(source.news).where(is_new), NEW))
        if known := known_files(work, source, log_snapshot):
            old = read(known).where(~is_new).where(F.col("position") >= work.first)
            parts.append(of_events(old, KNOWN))
    return parts or [of_events(read([]), NEW)]


def known_files(work: Publication, source: TableInput, log_snapshot: LogSnapshot) -> list[DataFile]:
    """The files of the log with published events that the new ones may repeat."""
    return [
        each
        for each in log_snapshot.of(source.name)
        if each.low.get("segment", 0) <= source.through[each.partition["scope"] or ""]
        and each.high.get("position", BEFORE_ALL) >= work.first
    ]


def _touched(
    spark: SparkSession, table: Table, candidates: Sequence[DataFile], keys: DataFrame
) -> list[DataFile]:
    """The files with a changed key, and the small ones if there are many."""
    rows = spark_files.read(spark, table, candidates)
    named = rows.select("key", rows.metadataColumn("_metadata")["file_name"].alias("file"))
    with spark_files.job_errors(f"{table.location}: nothing was committed"):
        touched = named.join(keys, "key", "left_semi").select("file").distinct().collect()
    names = {row.file for row in touched}
    # Names are unique: Spark adds a UUID.
    by_name = {each.path.rpartition("/")[2]: each for each in candidates}
    small = {name for name, each in by_name.items() if files.is_small(each)}
    if len(small) > _SMALL_FILES:
        names |= small
    return [each for name, each in by_name.items() if name in names]
