"""How the engine compares the rows of a destination with the source."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tailrace.destination import (
    Batch,
    DocumentId,
    HeldKey,
    HeldKeys,
    HeldRows,
    ReadDocuments,
    Row,
    ScopeContext,
)
from tailrace.destination.keeper import ManagedObject
from tailrace.destination.object_handler import forwarded, object_handler
from tailrace.destination.position import position_text
from tailrace.destinations.python import PythonHandlerSettings
from tailrace.engine import differing_fields, suspects_of
from tailrace.errors import InvalidPosition, Unavailable
from tailrace.event import ChangeEvent, Namespace
from tailrace.model import ResumeToken, SinkPosition
from tests.handlers import OWNER, opening
from tests.unit.engine.changes import change

ORDERS = Namespace("shop", "orders")
KEY = DocumentId(b"raw")
SETTINGS = PythonHandlerSettings(type="python", target="x:y")


class Opened:
    """What a destination opens, which has one row."""

    def __init__(self, position: str | None) -> None:
        self.position = position

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        return [{"document": document.raw} for document in documents]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        return HeldRows([{"document": key.raw} for key in keys], self.position)

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        return HeldKeys([HeldKey("1", KEY)] * most, after)


class Quick(Opened):
    async def suspects(self, collection: Namespace, read: ReadDocuments) -> Sequence[int]:
        return range(len(await read(HeldRows((), self.position))))


class Holding:
    def __init__(self, position: str | None = None, made: type[Opened] = Opened) -> None:
        self.position = position
        self.made = made
        self.opened: list[str] = []

    async def write(self, batch: Batch) -> None: ...

    @asynccontextmanager
    async def comparison(self, scope: ScopeContext) -> AsyncIterator[Opened]:
        self.opened.append(scope.name)
        yield self.made(self.position)
        self.opened.append("left")


class Plain:
    async def write(self, batch: Batch) -> None: ...


def handler(target: Any) -> Any:
    return object_handler(opening("mine"), target, SETTINGS, 1)


def test_a_destination_without_comparison_cannot_be_asked() -> None:
    assert handler(Plain()).comparison is None


async def test_its_position_is_that_of_the_stored_text() -> None:
    position = SinkPosition(ResumeToken.of({"_data": "82"}))
    target = Holding(position_text(position, OWNER))
    event = ChangeEvent.from_document(change(1))
    async with handler(target).comparison(OWNER) as comparison:
        assert await comparison.expected([event]) == [{"document": event.raw}]
        held = await comparison.stored(ORDERS, [KEY])
        assert (held.rows, held.position) == ([{"document": b"raw"}], position)
        assert await comparison.stored_keys(ORDERS, "a", 1) == HeldKeys([HeldKey("1", KEY)], "a")
    assert target.opened == [OWNER.scope, "left"]


async def test_one_that_compares_by_itself_tells_its_position() -> None:
    position = SinkPosition(ResumeToken.of({"_data": "82"}))
    given: list[HeldRows] = []

    async def read(held: HeldRows) -> Sequence[bytes]:
        given.append(held)
        return [KEY.raw]

    async with handler(Holding(position_text(position, OWNER), Quick)).comparison(OWNER) as one:
        suspects = suspects_of(one)
        assert suspects is not None
        assert list(await suspects(ORDERS, read)) == [0]
    assert given[0].position == position
    async with handler(Holding()).comparison(OWNER) as one:
        assert suspects_of(one) is None


@pytest.mark.parametrize("text", ["", "{}"])
async def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    async with handler(Holding(text)).comparison(OWNER) as comparison:
        with pytest.raises(InvalidPosition):
            await comparison.stored(ORDERS, [KEY])


async def test_a_destination_without_a_position_has_none() -> None:
    async with handler(Holding()).comparison(OWNER) as comparison:
        assert (await comparison.stored(ORDERS, [KEY])).position is None


def test_it_is_unavailable_while_the_object_is_not_open() -> None:
    managed: ManagedObject[Any] = ManagedObject("handler", Holding)
    shape = forwarded(handler(managed.target), lambda: handler(managed.usable()))
    assert shape.comparison is not None
    with pytest.raises(Unavailable, match="Holding is not open"):
        shape.comparison(OWNER)


@pytest.mark.parametrize(
    ("expected", "held", "fields"),
    [
        ({"a": b"1", "b": None, "c": "1"}, {"a": b"1", "c": "2", "d": None}, ["b", "c", "d"]),
        ({"d": '{"a": 1, "b": true}'}, {"d": '{"a": 1.0, "b": 1}'}, ["d.a", "d.b"]),
        ({"d": '{"a": null}'}, {"d": '{"b": 1}'}, ["d.a", "d.b"]),
        ({"d": b'{"a":1}'}, {"d": b'{"a": 1}'}, ["d"]),
        ({"d": '{"a": 1}'}, {"d": "{broken"}, ["d"]),
        ({"d": '{"$numberInt": "1"}'}, {"d": '{"$numberLong": "1"}'}, ["d"]),
    ],
)
def test_the_fields_that_differ_are_named(
    expected: dict[str, Any], held: dict[str, Any], fields: list[str]
) -> None:
    assert differing_fields(expected, held) == fields
