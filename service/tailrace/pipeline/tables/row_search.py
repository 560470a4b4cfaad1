"""A search for one row in the files of a table, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tailrace.pipeline.tables.port import RowSearch

if TYPE_CHECKING:  # it imports pandas, a quarter of what a run without news costs
    import pyarrow.dataset as ds


def search(
    fragments: Sequence[ds.Fragment],
    name: str,
    value: str,
    columns: Sequence[str],
    seconds: float,
) -> RowSearch:
    """As :meth:`tailrace.pipeline.tables.port.TableVersion.row_with`, in these files."""
    until, wanted = time.monotonic() + seconds, pc.field(name) == value
    for done, fragment in enumerate(fragments):
        if done and time.monotonic() > until:
            return RowSearch(None, done, len(fragments))
        # Row groups whose bounds exclude the value are not read.
        rows = fragment.head(1, columns=[*columns], filter=wanted).to_pylist()
        if rows:
            return RowSearch(rows[0], done + 1, len(fragments))
    return RowSearch(None, len(fragments), len(fragments))
