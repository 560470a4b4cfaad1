"""Bounds of the columns of a file: its lowest and highest values, and how many it lacks.

Readers skip files by them. A bound of a long text is cut, as Delta's own writer does: it is then
lower or higher than every value, and not a value itself.
"""

from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from tailrace.pipeline.tables.row_groups import Bounds

_LENGTH = 32
"""The length of a bound, in characters."""

_GREATEST = "\U0010ffff"

_ImpossibleTime = (ValueError, OverflowError)
"""A time that Python does not have. Such a column has no bounds."""


def of_rows(rows: pa.Table) -> Bounds:
    """The bounds of rows that this process has."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for name in rows.column_names:
        with suppress(*_ImpossibleTime):
            found = pc.min_max(rows[name]).as_py()
            if found["min"] is not None:
                low[name], high[name] = _cut(found["min"]), _cut_up(found["max"])
    return low, high, {name: rows[name].null_count for name in rows.column_names}


def of_footer(metadata: parquet.FileMetaData) -> Bounds:
    """The bounds that a file of Spark has in its footer, where texts are cut already."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        statistics = [group.column(at).statistics for group in groups]
        if not all(one is not None and one.has_null_count for one in statistics):
            continue
        nulls[name] = sum(one.null_count for one in statistics)
        filled = [one for one in statistics if one.num_values]
        with suppress(*_ImpossibleTime):
            if filled and all(one.has_min_max for one in filled):
                low[name] = min(one.min for one in filled)
                high[name] = max(one.max for one in filled)
    return low, high, nulls


def _cut(value: Any) -> Any:
    return value[:_LENGTH] if isinstance(value, str) else value


def _cut_up(value: Any) -> Any:
    """No text that begins so is greater, unless the greatest character follows: it is kept."""
    if not isinstance(value, str) or len(value) <= _LENGTH:
        return value
    kept = len(value[_LENGTH:]) - len(value[_LENGTH:].lstrip(_GREATEST))
    return value[: _LENGTH + kept] + _GREATEST
