"""The list of collections, where one reply does not hold it."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from bson import Binary

from tailrace.model import Scope
from tailrace.snapshot.listed_collections import listed
from tests.unit.snapshot.test_requests import Gone

NAMES = [f"c{number:03}" for number in range(100)]


class Large(Gone):
    """A database with collections, of which a reply holds so many. As the server sends them, they
    are in no order, but always in the same one."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.names = random.Random(1).sample(NAMES, len(NAMES))

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        wanted = command["filter"]["name"]
        found = [
            {"name": name, "info": {"uuid": Binary(bytes(16), 4)}}
            for name in self.names
            if wanted["$gt"] < name < wanted.get("$lt", "z")
        ]
        return {"cursor": {"id": int(len(found) > self.most), "firstBatch": found[: self.most]}}


@pytest.mark.parametrize("most", [1, 2, 3, 10, 99, 100])
async def test_none_is_left_out_however_few_are_in_a_reply(most: int) -> None:
    assert [each.name async for each in listed(Large(most), Scope("s", "shop"))] == NAMES
