"""Counts a publication while Spark writes its rows; the commit of the table has the counts."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from tailrace.pipeline.typed_columns import Columns, misfits
from tailrace.pipeline.versions import NEW

_RESCUED = "rescued:"


def observed(rows: DataFrame, metrics: Observation, columns: Columns) -> DataFrame:
    """Counts versions (:func:`tailrace.pipeline.versions.versions`) while Spark computes them:
    events, events without effect, and values in their documents that do not fit their column
    (:func:`tailrace.pipeline.typed_columns.evaluated`)."""
    counts = {
        "events": f"stage = {NEW}",
        "duplicates_dropped": "stale",
        "updates_without_base": "live AND without_base",
        "set_aside": "live AND unfit",
    }
    for name, condition in misfits(columns):
        counts[_RESCUED + name] = f"stage = {NEW} AND live AND NOT gone AND {condition}"
    return rows.observe(
        metrics, *(F.expr(f"count_if({text})").alias(name) for name, text in counts.items())
    )


def record_of(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts for the commit, with the number of rescued values by column."""
    found: dict[str, Any] = {"rescued": {}}
    for name, count in counts.items():
        if not name.startswith(_RESCUED):
            found[name] = count or 0
        elif count:
            found["rescued"][name.removeprefix(_RESCUED)] = count
    return found
