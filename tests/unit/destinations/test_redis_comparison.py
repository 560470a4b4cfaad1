"""The keys of Redis that a comparison reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import bson

from tailrace.destination import DocumentId, HeldKey, Namespace
from tailrace.destinations.redis.comparison import KeysComparison


class Scanned:
    """A server with these keys."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = list(keys)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        yield self

    async def one(self, *command: Any) -> Any:
        return [b"0", self.keys]


class Names:
    def prefix(self, database: str, collection: str) -> str:
        return f"{database}.{collection}:"

    def pattern(self, prefix: str) -> str:
        return prefix + "*"


async def test_a_key_that_is_written_as_no_document_is_belongs_to_none() -> None:
    texts = [
        b'{"_id":{"$numberInt":"1"}}',
        b'{"_id":1}',
        b'{"_id": "a"}',
        b'{"_id":"\xff"}',
        b'{"_id":{"$numberInt":"1"},"region":"x"}',  # of a sharded collection
    ]
    server: Any = Scanned(*(b"shop.orders:" + each for each in texts))
    names: Any = Names()
    comparison = KeysComparison(server, names, lambda _: [], expires=False)
    held = await comparison.stored_keys(Namespace("shop", "orders"), None, 100)
    assert held.keys == [
        HeldKey('{"_id":{"$numberInt":"1"}}', DocumentId(bson.encode({"_id": 1}))),
        HeldKey('{"_id":1}', None),
        HeldKey('{"_id": "a"}', None),
        HeldKey('{"_id":"\\xff"}', None),
    ]
