"""Folding: updates without an image applied to the document before; runs in Spark's Python workers.

Documents stay canonical Extended JSON. An element is a document where a path of the description
leads through it; names like ``$oid``, which fields may have too, decide nothing.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.event.update_description import apply_update

_UNFIT = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What applying a description that no server sends (a pipeline may have reshaped it) can raise."""

_PARTS = {
    "updatedFields": dict,
    "removedFields": list,
    "truncatedArrays": list,
    "disambiguatedPaths": dict,
}
_ALWAYS = ("updatedFields", "removedFields")
"""Every server sends these: without one of them a part of the change is missing."""

_MADE = {
    "document": pa.string(),
    "gone": pa.bool_(),
    "without_base": pa.bool_(),
    "unfit": pa.bool_(),
}
"""The columns that depend on the document before the event."""

_EVENT = ("stage", "operation", "image", "document", "update_description")


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fills the columns that depend on the document before the event.

    Rows are sorted by line, key and order; those of a key follow one another, across batches too.
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

    ``without_base`` is an update of an unknown document, ``unfit`` one that cannot be applied.
    """
    if operation == "delete" and stage > 0:
        return None, True, None
    if stage == 0 or image == "present" or operation != "update":
        return document, False, None
    if before is not None and description is not None:
        try:
            return folded(before, description), False, None
        except _UNFIT:
            return None, False, "unfit"
    # A look-up that found nothing: the document is gone, and its deletion is still to come.
    return None, image == "null", "without_base"


def folded(document: str, description: str) -> str:
    """A document after an ``updateDescription``; raises one of ``_UNFIT`` for anything else."""
    change = json.loads(description)
    for name, kind in _PARTS.items():
        if not isinstance(change[name] if name in _ALWAYS else change.get(name) or kind(), kind):
            raise TypeError(f"{name} of an update description")
    if not all(
        isinstance(path, list) for path in (change.get("disambiguatedPaths") or {}).values()
    ):
        raise TypeError("a path of an update description")
    after = apply_update(json.loads(document), change)
    return json.dumps(after, ensure_ascii=False, separators=(",", ":"))
