"""What a scope needs of its collections, for users who may list them and for others."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from bson import Binary
from structlog.testing import capture_logs

from tailrace.errors import CommandFailed, ConnectionFailed
from tailrace.model import Scope
from tailrace.snapshot.followed import examine, warn_of_followed
from tests.unit.snapshot.test_orders import Gone


class Server(Gone):
    """Databases with collections, each with whether it stores images."""

    def __init__(self, *, may_list: bool = True, **databases: Mapping[str, bool]) -> None:
        self.may_list = may_list
        self.databases = databases

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        if "listDatabases" in command:
            return {"databases": [{"name": name} for name in self.databases]}
        if not (self.may_list or command.get("nameOnly")):
            raise CommandFailed("not authorized on shop to execute command", code=13)
        found = [
            {
                "name": name,
                "options": {"changeStreamPreAndPostImages": {"enabled": images}},
                "info": {"uuid": Binary(bytes(16), 4)},
            }
            for name, images in self.databases.get(database, {}).items()
            if command.get("filter", {}).get("name", name) in (name, {"$gt": ""})
        ]
        return {"cursor": {"id": 0, "firstBatch": found}}


@pytest.mark.parametrize("may_list", [True, False])
@pytest.mark.parametrize(
    ("database", "collection", "said"),
    [
        ("shop", "orders", ""),
        ("shop", "ordrs", "there is no collection shop.ordrs: .*; did you mean orders\\?"),
        ("shop", "ORDERS", "did you mean orders\\?"),
        ("shop", "nothing_like_it", "followed once it is created$"),
        ("shpo", "orders", "did you mean the database shop\\?"),
    ],
)
async def test_a_missing_collection_is_told_with_the_name_that_may_be_meant(
    database: str, collection: str, said: str, may_list: bool
) -> None:
    server = Server(may_list=may_list, shop={"orders": True, "users": False})
    found = await examine(server, Scope("s", database, collection), images=False)
    assert re.search(said or "^$", found.missing)


@pytest.mark.parametrize(("count", "named"), [(1, "shop.c0:"), (12, "shop.c7 and 2 others:")])
async def test_collections_without_images_are_named(count: int, named: str) -> None:
    collections = {"with": True} | {f"c{n}": False for n in range(count)}
    server = Server(shop=collections)
    scope = Scope("s", "shop")
    assert named in (await examine(server, scope, images=True)).refusal
    assert not (await examine(server, scope, images=False)).refusal
    server.may_list = False
    assert not (await examine(server, scope, images=True)).refusal
    server.may_list = True
    with capture_logs() as logs:
        await warn_of_followed(server, scope, images=True)
    assert [each["event"] for each in logs] == ["images.missing"]


async def test_a_server_that_does_not_answer_is_left_to_the_stream() -> None:
    class Silent(Server):
        async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
            raise ConnectionFailed("away")

    with capture_logs() as logs:
        await warn_of_followed(Silent(), Scope("s", "shop", "orders"), images=True)
    assert not logs
