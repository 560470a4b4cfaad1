"""What a publication counts while Spark writes its rows, and how its commit records that."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from tailrace.pipeline.typed_columns import fitted, misfits, variant
from tailrace.pipeline.versions import NEW

_RESCUED = "rescued:"


def observed(rows: DataFrame, metrics: Observation, columns: Mapping[str, str]) -> DataFrame:
    """Counts versions (:func:`tailrace.pipeline.versions.versions`) while Spark computes them: the
    events, those without effect, and the values in their documents that fit no column."""
    counts = {
        "events": f"stage = {NEW}",
        "duplicates_dropped": "stale",
        "updates_without_base": "live AND without_base",
        "set_aside": "live AND unfit",
    }
    own = rows.columns
    if columns:
        made = f"stage = {NEW} AND live AND NOT gone"
        rows = rows.selectExpr("*", f"IF({made}, {variant('document')}, NULL) AS parsed")
        rows = fitted(rows, "parsed", columns)
        for path, condition in misfits("parsed", "document", columns):
            counts[_RESCUED + path] = f"{made} AND {condition}"
    return rows.observe(
        metrics, *(F.expr(f"count_if({text})").alias(name) for name, text in counts.items())
    ).select(*own)


def record_of(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The counts for the commit, with the number of rescued values by column."""
    found = {name: value or 0 for name, value in counts.items()}
    rescued = {
        name.removeprefix(_RESCUED): found.pop(name)
        for name in list(found)
        if name.startswith(_RESCUED)
    }
    return {**found, "rescued": {path: count for path, count in rescued.items() if count}}
