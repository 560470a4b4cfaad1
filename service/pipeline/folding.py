"""Documents that came as descriptions of a change, put together: runs in Spark's Python workers.

An update without an image is applied to the document as the events before left it. Documents stay
Extended JSON all the way: its typed values are opaque here, so nothing is lost in a round trip.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from service.model.update_description import apply_update

_TYPES = frozenset(
    {
        "$oid",
        "$numberInt",
        "$numberLong",
        "$numberDouble",
        "$numberDecimal",
        "$binary",
        "$date",
        "$timestamp",
        "$regularExpression",
        "$code",
        "$symbol",
        "$undefined",
        "$minKey",
        "$maxKey",
        "$dbPointer",
    }
)
"""The first key of what Extended JSON writes for a value that JSON has no type for."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A typed value: not to be entered."""

    pairs: dict[str, Any]


@dataclass(slots=True)
class Document:
    """A document while its events pass: ``known`` is whether its content is."""

    exists: bool = False
    known: bool = False
    text: str | None = None


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fills ``document`` and ``without_base`` in rows sorted by line, key and order.

    The rows of a key follow one another, over batches as well.
    """
    key: tuple[str, str] | None = None
    document = Document()
    for batch in batches:
        at = {name: place for place, name in enumerate(batch.schema.names)}
        names = ("line", "key", "stage", "operation", "image", "document", "update_description")
        texts: list[str | None] = []
        unknown: list[bool] = []
        gone: list[bool] = []
        for line, own, *event in zip(
            *(batch.column(at[name]).to_pylist() for name in names), strict=True
        ):
            if (line, own) != key:
                key, document = (line, own), Document()
            without_base = _next(document, *event)
            texts.append(document.text)
            unknown.append(without_base)
            gone.append(not document.exists)
        columns = list(batch.columns)
        columns[at["document"]] = pa.array(texts, pa.string())
        columns[at["without_base"]] = pa.array(unknown, pa.bool_())
        columns[at["gone"]] = pa.array(gone, pa.bool_())
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _next(
    document: Document,
    stage: int,
    operation: str,
    image: str | None,
    text: str | None,
    description: str | None,
) -> bool:
    """What an event makes of the document; returns whether an update found none to change."""
    if operation == "delete" and stage > 0:
        document.exists, document.known, document.text = False, False, None
        return False
    if stage == 0 or image == "present" or operation != "update":
        document.exists, document.known, document.text = True, text is not None, text
        return False
    if document.known and document.text is not None and description is not None:
        document.text = folded(document.text, description)
        return False
    # The server looked for it and found none: it is gone, and its deletion is still to come.
    document.exists = image != "null"
    document.known, document.text = False, None
    return True


def folded(document: str, description: str) -> str:
    """A document's canonical Extended JSON after what an ``updateDescription`` says."""
    change = _load(description)
    change["truncatedArrays"] = [
        {"field": each["field"], "newSize": _plain(each["newSize"])}
        for each in change.get("truncatedArrays") or ()
    ]
    change["disambiguatedPaths"] = {
        field: [_plain(part) for part in path]
        for field, path in (change.get("disambiguatedPaths") or {}).items()
    }
    return json.dumps(
        apply_update(_load(document), change),
        ensure_ascii=False,
        separators=(",", ":"),
        default=_pairs,
    )


def _load(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text, object_hook=_typed)
    return loaded


def _typed(pairs: dict[str, Any]) -> dict[str, Any] | Scalar:
    for name in pairs:
        return Scalar(pairs) if name in _TYPES else pairs
    return pairs


def _pairs(value: Any) -> Any:
    if isinstance(value, Scalar):
        return value.pairs
    raise TypeError(type(value).__name__)


def _plain(value: Any) -> Any:
    """A typed integer as one; names as they are."""
    if isinstance(value, Scalar):
        ((kind, digits),) = value.pairs.items()
        return int(float(digits)) if kind == "$numberDouble" else int(digits)
    return value
