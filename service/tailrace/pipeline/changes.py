"""The log of changes: a table that has every landed event once, and only grows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce

from pyarrow import compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.pandas.types import to_arrow_schema

from tailrace.event.cluster_position import BEFORE_ALL, position
from tailrace.lake.segment import Documents
from tailrace.pipeline import files, small_batch
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.lineage import Statement, position_sql
from tailrace.pipeline.schemas import CHANGES, DECODED, NO_TABLE, segment_schema
from tailrace.pipeline.segments import LandedSegment
from tailrace.pipeline.tables import DataFile, Table, TableStore, TableVersion

GAPS = "tailrace.gaps"
"""The log's property that records, by scope, the position of the last event before a gap."""


def changes_table(tables: TableStore, lake: str) -> Table:
    return Table(
        tables,
        "changes",
        CHANGES,
        lake,
        ("scope", "table"),
        bounded=True,  # by which this pipeline chooses files, too
        description="Every change that Tailrace has landed, once",
    )


def append(
    spark: SparkSession,
    snapshot: TableVersion,
    batches: Iterable[Sequence[LandedSegment]],
    replaced: Sequence[DataFile] = (),
) -> tuple[TableVersion, int]:
    """Adds segments' events and removes ``replaced`` in one commit.

    Returns the log after it, and how many events were added.
    """
    segments: list[LandedSegment] = []
    adds: list[DataFile] = []
    for batch in batches:
        segments += batch
        if any(segment.footer.rows for segment in batch):
            few = small_batch.rows_of(batch)
            adds += (
                files.write(_rows(spark, batch, snapshot.table), snapshot.table)
                if few is None
                else files.write_arrow(few, snapshot.table)
            )
    footers = [segment.footer for segment in segments]
    last = {footer.scope: footer.segment for footer in footers}  # in the order of their numbers
    gaps = {
        footer.scope: position(footer.cluster_time.time, footer.cluster_time.inc)
        for footer in footers
        if footer.gap is not None and footer.cluster_time is not None
    }
    if gaps and not snapshot.exists:
        snapshot = snapshot.commit()
    if gaps:
        snapshot = snapshot.set_properties({GAPS: {**snapshot.property(GAPS), **gaps}})
    snapshot = snapshot.commit(adds, replaced, segments=last)
    return snapshot, sum(each.rows for each in adds)


def statements(
    log: TableVersion, chosen: Iterable[DataFile], operations: Sequence[str]
) -> list[tuple[str, int, Statement]]:
    """Each with its scope and segment. They are few, so this process reads them."""
    names = ("segment", "operation", "database", "collection", "extra", "position")
    logged = []
    files_of_none = [file for file in chosen if file.partition["table"] == NO_TABLE]
    for file, rows in files.read_here(log.table, files_of_none, names):
        some = rows.filter(pc.field("operation").isin([*operations]))
        logged += [(file.partition["scope"] or "", row) for row in some.to_pylist()]
    return [
        (scope, row["segment"], statement)
        for scope, row in logged
        for statement in Statement.all_of(row)
    ]


def newer(chosen: Sequence[DataFile], through: Mapping[str, int]) -> list[DataFile]:
    """The files that may hold events after the given segments (by scope)."""
    return [
        each
        for each in chosen
        if each.high.get("segment", 2**63) > through.get(each.partition["scope"] or "", -1)
    ]


def first_position(chosen: Iterable[DataFile]) -> int:
    """A position that no event in the files precedes."""
    found: int = min((each.low.get("position", BEFORE_ALL) for each in chosen), default=2**63)
    return found


def after(through: Mapping[str, int]) -> Column:
    """The condition that an event's segment is after the given segment of its scope."""
    if not through:
        return F.lit(True)
    known = " ".join(f"WHEN '{scope}' THEN {segment}" for scope, segment in through.items())
    return F.expr(f"segment > CASE scope {known} ELSE -1 END")


def _rows(spark: SparkSession, segments: Sequence[LandedSegment], table: Table) -> DataFrame:
    """Decodes segments, in groups by the form of documents and by whether rows are repeated."""
    groups: dict[tuple[Documents, bool], list[LandedSegment]] = {}
    for segment in segments:
        if segment.footer.rows:
            groups.setdefault((segment.footer.documents, segment.repeats), []).append(segment)
    parts = []
    for (documents, repeats), group in groups.items():
        locations = [segment.file for segment in group]
        landed = files.scan(spark, segment_schema(documents), locations, table)
        if repeats:
            landed = _once(landed, group)
        decoder = partial(
            decode, documents=documents, schema=to_arrow_schema(DECODED, timezone="UTC")
        )
        decoded = landed.mapInArrow(decoder, DECODED)
        derived = {
            "cluster_time": F.timestamp_seconds("cluster_seconds"),
            "position": F.expr(position_sql("cluster_seconds", "cluster_increment")),
        }
        parts.append(decoded.withColumns(derived).select(*CHANGES.names))
    return reduce(DataFrame.unionByName, parts)


def _once(landed: DataFrame, group: Sequence[LandedSegment]) -> DataFrame:
    """Each ordinal once, and none that an earlier segment has."""
    floors = " ".join(
        f"WHEN scope = '{each.footer.scope}' AND segment = {each.footer.segment} THEN {each.floor}"
        for each in group
    )
    return landed.where(f"ordinal > CASE {floors} END").dropDuplicates(["scope", "ordinal"])
