"""Adds landed segments to the log of changes."""

from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from tailrace.event.cluster_position import position
from tailrace.pipeline import log_files
from tailrace.pipeline.changes import GAPS
from tailrace.pipeline.segments import LandedSegment
from tailrace.pipeline.tables import DataFile, TableVersion


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
            adds += log_files.write(spark, batch, snapshot.table)
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
