"""Applies updates without an image to the previous document, in Spark's Python workers.

Documents stay canonical Extended JSON. An element counts as a document if a path of the description
leads through it. Names like ``$oid`` do not count, because fields may have them as well.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.event.update_description import UNFIT, updated_text

_MADE = {
    "document": pa.string(),
    "gone": pa.bool_(),
    "without_base": pa.bool_(),
    "unfit": pa.bool_(),
}
"""The columns that depend on the previous document."""

_EVENT = ("stage", "operation", "image", "document", "update_description")


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fills the columns that depend on the previous document.

    Rows are sorted by line, key and order. The rows of a key are consecutive, also across batches.
    """
    key: tuple[str, str] | None = None
    text: str | None = None
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows: list[tuple[Any, ...]] = []
        for line, own, *event in zip(
            *(columns[name].to_pylist() for name in ("line", "key", *_EVENT)), strict=True
        ):
            if (line, own) != key:
                key, text = (line, own), None
            text, gone, reason = _after(text, *event)
            rows.append((text, gone, reason == "without_base", reason == "unfit"))
        for (name, kind), values in zip(_MADE.items(), zip(*rows, strict=True), strict=False):
            columns[name] = pa.array(values, kind)
        yield pa.RecordBatch.from_arrays([*columns.values()], schema=batch.schema)


def _after(
    before: str | None,
    stage: int,
    operation: str,
    image: str | None,
    document: str | None,
    description: str | None,
) -> tuple[str | None, bool, str | None]:
    """The document after an event (``None``: unknown), whether it is gone, and what went wrong.

    ``without_base``: an update of an unknown document; ``unfit``: an update that cannot be applied.
    """
    if operation == "delete" and stage > 0:
        return None, True, None
    if stage == 0 or image == "present" or operation != "update":
        return document, False, None
    if before is not None and description is not None:
        try:
            return updated_text(before, description), False, None
        except UNFIT:
            return None, False, "unfit"
    # A null image: the look-up found no document. It is gone, and its deletion is still to come.
    return None, image == "null", "without_base"
