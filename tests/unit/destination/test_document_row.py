"""The documents of copies as rows."""

import bson

from tailrace.destination.document_row import DocumentRow
from tailrace.engine import differing_fields


def test_the_fields_of_a_document_with_thousands_of_them_are_read_once() -> None:
    """Read once for each field, these would take minutes, in which no change is handled."""
    fields = {f"f{number}": number for number in range(20_000)}
    one = DocumentRow(bson.encode(fields))
    other = DocumentRow(bson.encode({**fields, "f7": "x", "more": 1}))
    assert differing_fields(one, other) == ["f7", "more"]
    assert len(other) == 20_001
