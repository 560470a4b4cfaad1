"""One collection of mongod, and a driver that reads it undecoded."""

from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp

from tailrace.event.reply import Reply
from tests.mongod import Client


@dataclass
class CollectionScene:
    """The collection ``c`` of a database; ``name`` is the name of the driver."""

    uri: str
    name: str
    database: str
    client: Client

    @property
    def collection(self) -> Any:
        return self.client[self.database].c

    @property
    def uuid(self) -> bytes:
        (found,) = self.client[self.database].list_collections(filter={"name": "c"})
        return bytes(found["info"]["uuid"])

    @property
    def now(self) -> Timestamp:
        time = self.client.admin.command("ping")["operationTime"]
        assert isinstance(time, Timestamp)
        return time


def documents(found: Reply) -> list[dict[str, Any]]:
    """The documents of a reply, decoded."""
    each = iter(found.bounds)
    bounds = zip(each, each, strict=True)
    return [bson.decode(found.buffer[begin:end]) for begin, end in bounds]
