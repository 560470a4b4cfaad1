"""Compares a destination with a collection that stands still, as the engine asks it to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import bson

from tailrace import Refused
from tailrace.engine import (
    ROWS_BYTES,
    Comparison,
    Handler,
    HeldRows,
    Row,
    differing_fields,
    suspects_of,
)
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.document_key import identity
from tailrace.model.snapshot import DocumentId
from tailrace.testing import Changes
from tests.handlers import OWNER, deliver

ORDERS = Namespace("shop", "orders")
PAGE = 700
"""Keys a page: more than one page in the tests of many rows."""


@dataclass
class Found:
    """What is not equal, by ``_id``; of a row that is too many by what is shown of its key."""

    different: dict[Any, list[str]] = field(default_factory=dict)
    missing: list[Any] = field(default_factory=list)
    too_many: list[str] = field(default_factory=list)
    refused: dict[Any, str] = field(default_factory=dict)
    position: Any = None

    def __bool__(self) -> bool:
        return bool(self.different or self.missing or self.too_many or self.refused)


async def compared(handler: Handler, changes: Changes, collection: Namespace = ORDERS) -> Found:
    """Compares all documents of ``changes`` and all rows."""
    assert handler.comparison is not None
    found, known = Found(), set[bytes]()
    async with handler.comparison(OWNER) as comparison:
        documents = changes.documents
        for begin in range(0, max(len(documents), 1), 1000):
            ids = [each["_id"] for each in documents[begin : begin + 1000]]
            known |= {identity(bson.encode({"_id": each}), 0) for each in ids}
            await _compare(comparison, changes, collection, ids, found)
        after: str | None = None
        while True:
            page = await comparison.stored_keys(collection, after, PAGE)
            for key in page.keys:
                if key.id is None or identity(key.id.raw, 0) not in known:
                    found.too_many.append(key.text)
            if (after := page.after) is None:
                return found


async def _compare(
    comparison: Comparison,
    changes: Changes,
    collection: Namespace,
    ids: Sequence[Any],
    found: Found,
) -> None:
    keys = [DocumentId(bson.encode({"_id": each})) for each in ids]
    held = await comparison.stored(collection, keys)
    found.position = held.position
    expected: dict[int, Row] = {}
    suspects = await _suspects(comparison, changes, collection, ids)
    differing = set[int]()
    events = {number: changes.read(each) for number, each in enumerate(ids)}
    try:
        expected = await _expected(comparison, events)
    except Refused as error:
        numbers = list(events)
        for at, why in error.reasons.items():
            found.refused[ids[numbers[at]]] = why
            del events[numbers[at]]
        expected = await _expected(comparison, events)
    for number, row in expected.items():
        if (there := held.rows[number]) is None:
            if not held.expires:
                differing.add(number)
                found.missing.append(ids[number])
        elif there != row:
            differing.add(number)
            found.different[ids[number]] = differing_fields(row, there)
    if suspects is not None:  # all, if any is refused
        assert suspects >= differing
        assert suspects == differing or found.refused


async def _suspects(
    comparison: Comparison, changes: Changes, collection: Namespace, ids: Sequence[Any]
) -> set[int] | None:
    """Those that a destination tells by itself, if it can."""
    if (ask := suspects_of(comparison)) is None:
        return None

    documents = [changes.read(each).field_bytes("fullDocument") or b"" for each in ids]
    parts = [documents[:2], documents[2:]]

    async def read(held: HeldRows) -> Sequence[bytes]:
        return parts.pop(0) if parts else ()

    return set(await ask(collection, read))


async def _expected(comparison: Comparison, events: dict[int, ChangeEvent]) -> dict[int, Row]:
    rows = await comparison.expected(list(events.values()))
    return dict(zip(events, rows, strict=True))


async def read_in_parts(handler: Handler, changes: Changes) -> None:
    """Asks for large rows until all are read, of which few come at once."""
    ids = range(6)
    await deliver(handler, *[changes.insert({"_id": n, "pad": "x" * ROWS_BYTES}) for n in ids])
    assert handler.comparison is not None
    keys = [DocumentId(bson.encode({"_id": n})) for n in [*ids, 99]]
    async with handler.comparison(OWNER) as comparison:
        while len(keys) > 1:
            held = await comparison.stored(ORDERS, keys)
            assert not held.whole
            there = [key for key, row in zip(keys, held.rows, strict=True) if row is not None]
            assert 0 < len(there) <= 2
            keys = [key for key in keys if key not in there]
        held = await comparison.stored(ORDERS, keys)
        assert (held.rows, held.whole) == ([None], True)
