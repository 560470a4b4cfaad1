"""A Parquet file that is written in parts: its row groups, and the bounds of them all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

Bounds = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, int]]
"""The lowest and the highest values, and the counts of nulls, each by column."""


def row_groups(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """The rows in order, in parts of about ``size`` bytes in memory: each is to be a row group.

    Many small ones would make the file larger, and slower to read.
    """
    part: list[pa.RecordBatch] = []
    filled = 0
    for batch in batches:
        part.append(batch)
        filled += batch.nbytes
        if filled >= size:
            yield pa.Table.from_batches(part)
            part, filled = [], 0
    if part:
        yield pa.Table.from_batches(part)


def joined(parts: Sequence[tuple[int, Bounds]]) -> Bounds:
    """The bounds of all rows, from those of parts, each with its number of rows.

    A column has them if each part has the column, and bounds of it unless all its values are null.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in parts[0][1][2]:
        if not all(name in lacks for _, (_, _, lacks) in parts):
            continue
        nulls[name] = sum(lacks[name] for _, (_, _, lacks) in parts)
        filled = [(lows, highs) for rows, (lows, highs, lacks) in parts if lacks[name] < rows]
        if filled and all(name in lows and name in highs for lows, highs in filled):
            low[name] = min(lows[name] for lows, _ in filled)
            high[name] = max(highs[name] for _, highs in filled)
    return low, high, nulls
