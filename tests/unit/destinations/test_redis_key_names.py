"""Which keys belong to a collection of which some documents are held back."""

from typing import Any

import bson
import pytest

from tailrace.destinations.redis.key_names import ListedKeys
from tailrace.event.document_key import identity, key_text


@pytest.mark.parametrize("id", [1, "x", {"$date": "soon"}, {"$numberInt": "05"}], ids=str)
def test_a_key_of_a_held_document_is_not_listed(id: Any) -> None:
    """Also where an application's ``_id`` looks like a value of Extended JSON."""
    key = bson.encode({"_id": id})
    other = bson.encode({"_id": 2})
    listed = ListedKeys(["shop.orders:"], held={"shop.orders:": [identity(key, 0)]})
    names = [f"shop.orders:{key_text(each)}".encode() for each in (key, other)]
    assert [listed.owns(name) for name in names] == [False, True]
