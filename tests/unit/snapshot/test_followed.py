"""What a scope needs of its collections, for users who may list them and for others."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bson import Binary
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.errors import CommandFailed, ConnectionFailed, ScopeHalted
from tailrace.event.reply import Reply
from tailrace.model import Scope
from tailrace.snapshot.followed import examine, probe_read, warn_of_followed
from tailrace.snapshot.server import Find
from tests.unit.snapshot.test_requests import Gone


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


class Reads(Server):
    """Answers reads of documents as of a time with an error, or with nothing."""

    def __init__(self, answer: Exception | None) -> None:
        super().__init__(shop={"orders": True})
        self._answer = answer
        self.asked: list[Find] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        if "ping" in command:
            return {"ok": 1, "operationTime": Timestamp(7, 1)}
        return await super().run(database, command)

    async def find(self, find: Find) -> Sequence[Reply]:
        self.asked.append(find)
        if self._answer is not None:
            raise self._answer
        return ()


@pytest.mark.parametrize("code", [None, 246, 239, 26], ids=str)
async def test_one_document_is_read_as_a_snapshot_reads_it(code: int | None) -> None:
    """What passes by itself, or a collection that has just been dropped, is no refusal."""
    server = Reads(code and CommandFailed("later", code=code))
    await probe_read(server, Scope("s", "shop"), "secondary")
    (find,) = server.asked
    assert (find.collection, find.time, find.read_preference) == (
        "orders",
        Timestamp(7, 1),
        "secondary",
    )
    assert find.command["limit"] == 1


@pytest.mark.parametrize(
    "refusal",
    [
        CommandFailed("read concern snapshot is not supported", code=72),
        ScopeHalted("older than MongoDB 4.4: upgrade it, or set snapshot: never"),
    ],
    ids=["refused", "too old"],
)
async def test_a_server_without_reads_as_of_a_time_is_told_with_what_helps(
    refusal: Exception,
) -> None:
    with pytest.raises(ScopeHalted, match="set snapshot: never"):
        await probe_read(Reads(refusal), Scope("s", "shop"), None)


async def test_a_server_that_does_not_answer_is_left_to_the_stream() -> None:
    class Silent(Server):
        async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
            raise ConnectionFailed("away")

    with capture_logs() as logs:
        await warn_of_followed(Silent(), Scope("s", "shop", "orders"), images=True)
    assert not logs
