"""All tables anew, from the segments alone: for when what is in them is in doubt."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from tailrace.errors import PipelineRefused
from tailrace.pipeline import changes
from tailrace.pipeline.delta import Table
from tailrace.pipeline.segments import LandedLake, LandedSegment, Pending, pending, read_footers


def segments_of(lake: LandedLake) -> list[LandedSegment]:
    """Every segment, whole and in order.

    Raises :class:`PipelineRefused` where some are missing: what is in the tables is then all
    that is left of them.
    """
    found: list[LandedSegment] = []
    for each in pending(lake, {}):
        _require_whole(lake, each)
        found += read_footers(lake, each.scope, each.numbers)
    if not found:
        raise PipelineRefused(f"{lake.location}: has no segments to rebuild the tables from")
    return found


def _require_whole(lake: LandedLake, each: Pending) -> None:
    if each.missing is not None:
        raise PipelineRefused(
            f"{lake.file(each.scope, each.missing)}: is missing, so the tables cannot be rebuilt "
            "from segments. Nothing was changed. Restore it; where retention removed it, the "
            "tables are all there is of its events"
        )


def rebuild_log(
    spark: SparkSession, table: Table, segments: Sequence[LandedSegment], batch_events: int
) -> int:
    """The log anew, in one commit that takes the place of all that was there."""
    snapshot = table.load()
    adds = []
    batch: list[LandedSegment] = []
    for segment in segments:
        batch.append(segment)
        if sum(each.footer.rows for each in batch) >= batch_events:
            adds += changes.write(spark, table, batch)
            batch = []
    adds += changes.write(spark, table, batch)
    changes.commit(snapshot, segments, adds, snapshot.files)
    return sum(each.rows for each in adds)
