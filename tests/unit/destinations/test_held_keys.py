"""The keys of rows lead back to their documents: none of a document is called impossible."""

from collections.abc import Callable, Mapping
from typing import Any

import bson
import pytest
from hypothesis import given, settings

from tailrace.destination import HeldKey
from tailrace.destination.held_keys import held_key
from tailrace.destinations.kafka import comparison as topics
from tailrace.destinations.postgresql import comparison as tables
from tailrace.destinations.postgresql.rows import row_id
from tailrace.envelope import message_key
from tailrace.event.document_key import identity, key_text
from tests.unit.event.documents import EVERY_ID, quick, values


def of_row(id: bytes) -> HeldKey | None:
    return tables.held_key_of(row_id(identity(id, 0)), key_text(id))


def of_debezium(id: bytes) -> HeldKey | None:
    return topics.held_key_of(message_key(id, "debezium"), "debezium")


KEYS: Mapping[str, Callable[[bytes], HeldKey | None]] = {
    "a row of PostgreSQL": of_row,
    "a key of Redis or Kafka": lambda id: held_key(key_text(id)),
    "a key of Debezium": of_debezium,
}


@pytest.mark.parametrize("kind", KEYS)
@settings(parent=quick, max_examples=300)
@given(value=values)
def test_the_key_of_a_document_is_that_of_no_other(kind: str, value: Any) -> None:
    require_own(KEYS[kind], value)


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("value", EVERY_ID.values(), ids=EVERY_ID)
def test_the_key_of_every_type_is_read(kind: str, value: Any) -> None:
    require_own(KEYS[kind], value)


def require_own(read: Callable[[bytes], HeldKey | None], value: Any) -> None:
    """``None``: the text does not tell the exact ``_id``, so that nothing is said."""
    id = bson.encode({"_id": value})
    found = read(id)
    if found is not None:
        assert found.id is not None, found.text
        assert identity(found.id.raw, 0) == identity(id, 0)
