"""What a destination with :class:`tailrace.destination.Comparison` promises."""

from collections.abc import Callable, Mapping
from typing import Any
from unittest import SkipTest

import bson

from tailrace.destination import Comparison, DocumentId, RunIdentity
from tailrace.testing.changes import Changes
from tailrace.testing.harness import SCOPE, Harness
from tailrace.testing.process import CLUSTER

_PAGE = 3

Document = Callable[[int, int], Mapping[str, Any]]
"""The document of a number and a version."""


async def comparison_faults(harness: Harness, document: Document, *, once: bool) -> str:
    """Writes documents, and compares them; returns the first thing that is wrong, or nothing."""
    changes, source = harness.changes, Changes()
    ids = [document(number, 1)["_id"] for number in range(1, 9)]
    for number in range(1, 9):
        changes.insert(document(number, 1))
    changes.replace(document(2, 2))
    await harness.handled()
    source.insert(document(1, 2))
    handler = harness.handler
    if handler is None or handler.comparison is None:
        raise SkipTest("it has no comparison")
    async with handler.comparison(RunIdentity(SCOPE, str(CLUSTER), "", 1)) as comparison:
        expected = await comparison.expected([changes.read(each) for each in ids])
        held = await comparison.stored(changes.ns, [_key(each) for each in ids])
        for number, (ours, theirs) in enumerate(zip(expected, held.rows, strict=True), 1):
            if ours != theirs:
                return f"document {number} is written: expected makes {ours}, stored has {theirs}"
        if (held.position is None) == once and not handler.from_beginning:
            return "stored returns position_text exactly if the class has begin"
        other = await comparison.expected([source.read(ids[0])])
        if other[0] == held.rows[0]:
            return f"expected makes the same row of two versions of a document: {other[0]}"
        changes.insert(document(9, 1))
        changes.delete(ids[0])
        await harness.handled()
        later = await comparison.stored(changes.ns, [_key(document(9, 1)["_id"]), _key(ids[0])])
        if later.rows[0] is None or later.rows[1] is not None:
            return f"stored does not see what was written since: {later.rows}"
        listed = await _listed(comparison, changes)
    if wrong := {each["_id"] for each in changes.documents} ^ listed:
        return f"stored_keys misses these, or has them although they are gone: {wrong}"
    return ""


def _key(id: Any) -> DocumentId:
    return DocumentId(bson.encode({"_id": id}))


async def _listed(comparison: Comparison, changes: Changes) -> set[Any]:
    found: set[Any] = set()
    after: str | None = None
    while True:
        page = await comparison.stored_keys(changes.ns, after, _PAGE)
        found |= {each.id and bson.decode(each.id.raw)["_id"] for each in page.keys}
        if (after := page.after) is None:
            return found
