"""The log of changes: every landed event once, in a table that only grows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.pipeline import files
from tailrace.pipeline.cluster_order import position, position_sql
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.delta import DataFile, Snapshot, Table
from tailrace.pipeline.lineage import Statement
from tailrace.pipeline.location import Location
from tailrace.pipeline.names import NO_TABLE
from tailrace.pipeline.schemas import CHANGES, segment_schema
from tailrace.pipeline.segments import LandedSegment

GAPS = "tailrace.gaps"
"""The property of the log that has, by scope, the position of the last event before a gap."""

_DERIVED = ("cluster_time", "position")
_DECODED = StructType([field for field in CHANGES if field.name not in _DERIVED])


def changes_table(tables: Location, lake: str) -> Table:
    return Table(
        tables / "changes",
        CHANGES,
        lake,
        ("scope", "table"),
        statistics=("segment", "ordinal", "position", "image"),
        description="Every change that Tailrace has landed, once",
    )


def append(spark: SparkSession, snapshot: Snapshot, segments: Sequence[LandedSegment]) -> int:
    """Adds the events of segments that follow what is committed; returns how many.

    Raises :class:`tailrace.errors.TablesFenced` where another pipeline has committed meanwhile.
    """
    adds = _write(spark, snapshot.table, segments)
    _commit(snapshot, segments, adds)
    return sum(each.rows for each in adds)


def rebuild(
    spark: SparkSession, table: Table, segments: Sequence[LandedSegment], batch_events: int
) -> int:
    """Replaces the whole log in one commit; returns how many events it has."""
    snapshot = table.load()
    adds: list[DataFile] = []
    batch: list[LandedSegment] = []
    for segment in segments:
        batch.append(segment)
        if segment is segments[-1] or sum(each.footer.rows for each in batch) >= batch_events:
            adds += _write(spark, table, batch)
            batch = []
    _commit(snapshot, segments, adds, snapshot.files)
    return sum(each.rows for each in adds)


def _write(spark: SparkSession, table: Table, segments: Sequence[LandedSegment]) -> list[DataFile]:
    """Writes the events of segments into files that no commit refers to yet."""
    if not any(segment.footer.rows for segment in segments):
        return []
    return files.write(_rows(spark, segments), table)


def _commit(
    snapshot: Snapshot,
    segments: Sequence[LandedSegment],
    adds: Sequence[DataFile],
    removes: Sequence[DataFile] = (),
) -> None:
    """Commits the files of segments, after the property that names the gaps between them."""
    last: dict[str, int] = {}
    gaps: dict[str, int] = {}
    for segment in segments:
        footer = segment.footer
        last[footer.scope] = max(last.get(footer.scope, -1), footer.segment)
        if footer.gap is not None and footer.cluster_time is not None:
            gaps[footer.scope] = position(footer.cluster_time.time, footer.cluster_time.inc)
    if gaps and not snapshot.exists:
        snapshot.commit()
        snapshot = snapshot.table.load()
    if gaps and snapshot.set_property(GAPS, snapshot.property(GAPS) | gaps):
        snapshot = snapshot.table.load()
    snapshot.commit(adds, removes, segments=last)


def read(spark: SparkSession, table: Table, chosen: Sequence[DataFile]) -> DataFrame:
    """The rows of some of the log's files, with their scope and table."""
    return files.read_table(spark, table, chosen)


def statements(
    spark: SparkSession, log: Snapshot, chosen: Iterable[DataFile], operations: Sequence[str]
) -> list[tuple[str, int, Statement]]:
    """The statements of these operations in some of the log's files, with scope and segment."""
    chosen = [each for each in chosen if each.partition["table"] == NO_TABLE]
    if not chosen:
        return []
    rows = read(spark, log.table, chosen).where(F.col("operation").isin(*operations))
    names = ("scope", "segment", "operation", "database", "collection", "extra", "position")
    with files.job_errors(f"{log.table.location}: nothing was committed"):
        found = rows.select(*names).collect()
    return [
        (row.scope, row.segment, statement)
        for row in found
        if (statement := Statement.of(row.asDict())) is not None
    ]


def newer(chosen: Sequence[DataFile], through: Mapping[str, int]) -> list[DataFile]:
    """The files that may hold events after the segments given, by scope."""
    return [
        each
        for each in chosen
        if each.high.get("segment", 2**63) > through.get(each.partition["scope"] or "", -1)
    ]


def after(through: Mapping[str, int]) -> Column:
    """The condition that an event's segment is after the one given for its scope."""
    if not through:
        return F.lit(True)
    known = " ".join(f"WHEN '{scope}' THEN {segment}" for scope, segment in through.items())
    return F.expr(f"segment > CASE scope {known} ELSE -1 END")


def _rows(spark: SparkSession, segments: Sequence[LandedSegment]) -> DataFrame:
    """Segments decoded, in one group for each form of documents, with and without repetitions."""
    groups: dict[tuple[str, bool], list[LandedSegment]] = {}
    for segment in segments:
        if segment.footer.rows:
            groups.setdefault((segment.footer.documents.value, segment.repeats), []).append(segment)
    parts = []
    for (_, repeats), group in groups.items():
        documents = group[0].footer.documents
        landed = spark.read.schema(segment_schema(documents)).parquet(
            *(segment.file.spark for segment in group)
        )
        if repeats:
            landed = _once(landed, group)
        decoder = partial(
            decode, documents=documents, schema=to_arrow_schema(_DECODED, timezone="UTC")
        )
        decoded = landed.mapInArrow(decoder, _DECODED)
        derived = {
            "cluster_time": F.timestamp_seconds("cluster_seconds"),
            "position": F.expr(position_sql("cluster_seconds", "cluster_increment")),
        }
        parts.append(decoded.withColumns(derived).select(*CHANGES.names))
    return reduce(DataFrame.unionByName, parts)


def _once(landed: DataFrame, group: Sequence[LandedSegment]) -> DataFrame:
    """Each ordinal once, without those that earlier segments have."""
    floors = " ".join(
        f"WHEN scope = '{each.footer.scope}' AND segment = {each.footer.segment} THEN {each.floor}"
        for each in group
    )
    return landed.where(f"ordinal > CASE {floors} END").dropDuplicates(["scope", "ordinal"])
