"""Rows beside what their documents make."""

from collections.abc import Sequence
from typing import Any

import bson

from tailrace.destination import DocumentId, HeldKeys, HeldRows, Row
from tailrace.errors import Refused
from tailrace.event import ChangeEvent
from tailrace.model.verification import Kind
from tailrace.verify.compare import (
    ExpectedRows,
    Suspect,
    compared,
    expected_rows,
    value_text,
)
from tests.unit.engine.changes import change

KEYS = [DocumentId(bson.encode({"_id": number})) for number in range(6)]


def test_each_key_is_equal_suspect_refused_or_not_there_at_all() -> None:
    one, two = {"n": "1"}, {"n": "2"}
    rows: list[Row | None] = [one, one, None, one]
    expected = ExpectedRows(rows, {2: "too large"})
    found = compared(
        KEYS, [0, 1, 2, 3, None, None], expected, HeldRows([one, two, one, None, one, None])
    )
    assert found.equal == 1
    assert found.refused == {KEYS[2]: "too large"}
    assert found.suspects == [
        Suspect(KEYS[1], Kind.DIFFERENT, ("n",), one, two),
        Suspect(KEYS[3], Kind.MISSING, (), one, None),
        Suspect(KEYS[4], Kind.TOO_MANY, (), None, one),
    ]


def test_a_key_whose_document_was_not_read_is_no_suspect() -> None:
    found = compared(
        KEYS[:2], [None, None], ExpectedRows([], {}), HeldRows([{"n": "1"}, None]), whole=False
    )
    assert (found.unread, found.suspects) == (KEYS[:2], [])


def test_a_row_that_may_have_expired_is_no_suspect() -> None:
    found = compared(KEYS[:1], [0], ExpectedRows([{"n": "1"}], {}), HeldRows([None], expires=True))
    assert (found.equal, found.suspects) == (0, [])


def test_values_are_shown_as_text() -> None:
    assert value_text({"a": b"\xff1", "b": 2}, "a") == "\\xff1"
    assert value_text({"a": b"1", "b": 2}, "b") == "2"
    assert value_text(None, "b") == ""


class Refusing:
    """Makes no row of documents with an odd number; tells only the first of a call."""

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        for at, document in enumerate(documents):
            if self.number(document) % 2:
                raise Refused({at: "odd"})
        return [{"n": self.number(document)} for document in documents]

    @staticmethod
    def number(document: ChangeEvent) -> int:
        return int((document.document_key or {})["_id"])

    async def stored(self, collection: Any, keys: Any) -> HeldRows:
        raise AssertionError

    async def stored_keys(self, collection: Any, after: Any, most: Any) -> HeldKeys:
        raise AssertionError


async def test_documents_of_which_there_is_no_row_are_left_out() -> None:
    events = [ChangeEvent.from_document(change(1, number)) for number in range(600)]
    found = await expected_rows(Refusing(), events)
    assert found.rows == [None if number % 2 else {"n": number} for number in range(600)]
    assert found.refused == {number: "odd" for number in range(600) if number % 2}
