"""Folding: updates without an image applied to the document before; runs in Spark's Python workers.

Documents stay canonical Extended JSON: an edit of its elements is an edit of the document. An
element is a document where a path of the description leads through it; names like ``$oid``, which
fields may have too, decide nothing.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

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


class Effect(Enum):
    """What an event did to its document."""

    APPLIED = "applied"
    WITHOUT_BASE = "without base"
    """An update of a document whose content is unknown."""
    UNFIT = "unfit"
    """An update that cannot be applied: it is set aside, and the document is unknown after it."""


@dataclass(slots=True)
class Document:
    """A document between its events; ``text`` is ``None`` where its content is unknown."""

    exists: bool = False
    text: str | None = None


def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fills the columns that depend on the document before the event.

    Rows are sorted by line, key and order; those of a key follow one another, across batches too.
    """
    key: tuple[str, str] | None = None
    document = Document()
    for batch in batches:
        at = {name: place for place, name in enumerate(batch.schema.names)}
        names = ("line", "key", "stage", "operation", "image", "document", "update_description")
        texts: list[str | None] = []
        effects: list[Effect] = []
        gone: list[bool] = []
        for line, own, *event in zip(
            *(batch.column(at[name]).to_pylist() for name in names), strict=True
        ):
            if (line, own) != key:
                key, document = (line, own), Document()
            effects.append(_next(document, *event))
            texts.append(document.text)
            gone.append(not document.exists)
        columns = list(batch.columns)
        columns[at["document"]] = pa.array(texts, pa.string())
        for name, effect in (("without_base", Effect.WITHOUT_BASE), ("unfit", Effect.UNFIT)):
            columns[at[name]] = pa.array([each is effect for each in effects], pa.bool_())
        columns[at["gone"]] = pa.array(gone, pa.bool_())
        yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _next(
    document: Document,
    stage: int,
    operation: str,
    image: str | None,
    text: str | None,
    description: str | None,
) -> Effect:
    """Applies an event to the document."""
    if operation == "delete" and stage > 0:
        document.exists, document.text = False, None
        return Effect.APPLIED
    if stage == 0 or image == "present" or operation != "update":
        document.exists, document.text = True, text
        return Effect.APPLIED
    if document.text is not None and description is not None:
        try:
            document.text = folded(document.text, description)
        except _UNFIT:
            document.text = None
            return Effect.UNFIT
        return Effect.APPLIED
    # A look-up that found nothing: the document is gone, and its deletion is still to come.
    document.exists, document.text = image != "null", None
    return Effect.WITHOUT_BASE


def folded(document: str, description: str) -> str:
    """A document after an ``updateDescription``, both as canonical Extended JSON.

    Raises one of ``_UNFIT`` where that is no description of an update.
    """
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
