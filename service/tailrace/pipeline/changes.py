"""The log of changes: every landed event once, in a table that only grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - what all of Spark's users call it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.pipeline import files
from tailrace.pipeline.decoding import decode
from tailrace.pipeline.delta import DataFile, Snapshot, Table
from tailrace.pipeline.lineage import Statement
from tailrace.pipeline.location import Location
from tailrace.pipeline.names import NO_TABLE
from tailrace.pipeline.position import position, position_sql
from tailrace.pipeline.schemas import CHANGES, segment_schema
from tailrace.pipeline.segments import LandedSegment

GAPS = "tailrace.gaps"
"""The property of the log that has, by scope, the position of the last event before a gap."""

PARTITIONS = ("scope", "table")

STORED = StructType([field for field in CHANGES if field.name not in PARTITIONS])
"""What a file of the log holds itself; scope and table are its partition."""

_DERIVED = ("cluster_time", "position")
_DECODED = StructType([field for field in CHANGES if field.name not in _DERIVED])


def changes_table(tables: Location, lake: str) -> Table:
    """The log's table."""
    return Table(
        tables / "changes",
        CHANGES,
        lake,
        PARTITIONS,
        statistics=("segment", "ordinal", "position", "image"),
        description="Every change that Tailrace has landed, once",
    )


def append(spark: SparkSession, snapshot: Snapshot, segments: Sequence[LandedSegment]) -> int:
    """Adds the events of segments that follow what is committed; returns how many.

    Raises :class:`tailrace.errors.TablesFenced` where another pipeline was quicker.
    """
    adds = write(spark, snapshot.table, segments)
    commit(snapshot, segments, adds)
    return sum(each.rows for each in adds)


def write(spark: SparkSession, table: Table, segments: Sequence[LandedSegment]) -> list[DataFile]:
    """Writes the events of segments into files that no commit knows yet."""
    if not any(segment.footer.rows for segment in segments):
        return []
    return files.write(_rows(spark, segments), table)


def commit(
    snapshot: Snapshot,
    segments: Sequence[LandedSegment],
    adds: Sequence[DataFile],
    removes: Sequence[DataFile] = (),
) -> None:
    """Commits files as the events of segments, and before that what is skipped between them."""
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
    partitions: dict[tuple[str | None, ...], list[DataFile]] = {}
    for each in chosen:
        partitions.setdefault(tuple(each.partition[name] for name in PARTITIONS), []).append(each)
    parts = [
        files.read(spark, table.location, part, STORED).select(
            "*", *(F.lit(value).alias(name) for name, value in zip(PARTITIONS, values, strict=True))
        )
        for values, part in partitions.items()
    ]
    if not parts:
        return spark.createDataFrame([], CHANGES)
    return reduce(DataFrame.unionByName, parts)


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
    """The files that may hold events behind the segments given, by scope."""
    return [
        each
        for each in chosen
        if each.high.get("segment", 2**63) > through.get(each.partition["scope"] or "", -1)
    ]


def behind(through: Mapping[str, int]) -> Column:
    """The condition that an event's segment is behind the one given for its scope."""
    if not through:
        return F.lit(True)
    known = " ".join(f"WHEN '{scope}' THEN {segment}" for scope, segment in through.items())
    return F.expr(f"segment > CASE scope {known} ELSE -1 END")


def _rows(spark: SparkSession, segments: Sequence[LandedSegment]) -> DataFrame:
    """Segments decoded; those that hold documents in another form, or repetitions, apart."""
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
    """Without ordinals that segments before have, and each of the rest once."""
    floors = F.create_map(
        *(
            F.lit(value)
            for segment in group
            for value in (f"{segment.footer.scope}/{segment.footer.segment}", segment.floor)
        )
    )
    place = F.concat_ws("/", "scope", "segment")
    return landed.where(F.col("ordinal") > floors[place]).dropDuplicates(["scope", "ordinal"])
