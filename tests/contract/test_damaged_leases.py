"""Damaged and foreign records among the leases: each concerns only its own scope."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient

from tailrace.cli.scope_leases import list_scopes
from tailrace.model.lease import Lease, Member
from tailrace.stores import Store
from tests.contract.sqlite_files import execute
from tests.contract.stores import NOW, MongoBacking, SqliteBacking

ME = Member("a-1", "a")
FAR = datetime(2100, 1, 1, tzinfo=UTC)

DAMAGES: dict[str, Any] = {
    "until is missing": {"$unset": {"until": ""}},
    "until is text": {"$set": {"until": "soon"}},
    "until is a number": {"$set": {"until": 5}},
    "until is null": {"$set": {"until": None}},
    "until is a timestamp": {"$set": {"until": Timestamp(2**32 - 1, 1)}},
    "until is beyond all dates": {"$set": {"until": DatetimeMS(-(2**63))}},
    "owner is missing": {"$unset": {"owner": ""}},
    "owner is a number": {"$set": {"owner": 5}},
    "wanted_by is missing": {"$unset": {"wanted_by": ""}},
    "epoch is missing": {"$unset": {"epoch": ""}},
    "epoch is text": {"$set": {"epoch": "1"}},
    "epoch is null": {"$set": {"epoch": None}},
    "epoch is the greatest": {"$set": {"epoch": 2**63 - 1}},
    "epoch is negative": {"$set": {"epoch": -1}},
    "epoch is a far date": {"$set": {"epoch": DatetimeMS(2**62)}},
    "nothing of it is there": {
        "$unset": dict.fromkeys(("epoch", "owner", "until", "wanted_by"), "")
    },
}
FOREIGN: dict[str, Any] = {
    "of another type": {"_id": ObjectId(), "epoch": 1, "name": "x", "until": FAR},
    "of another name": {"_id": "note", "text": "hello", "until": "never"},
    "like a member": {"_id": "member:x", "until": FAR},
    "like a member with a name": {"_id": "member:y", "name": 5, "until": FAR, "joined": "then"},
}


async def prepared(store: Store) -> None:
    await store.leases.prepare(["orders", "users"])
    assert await store.leases.acquire(Lease("users"), ME.id, 1, 60)


async def assert_works_beside_it(store: Store, damaged: str) -> None:
    """Only the damaged one is left out and named; everything else is renewed, read and released."""
    assert await store.leases.renew(ME.id, ["users"], 60, ME) == 1
    await store.leases.prepare(["orders", "users"])
    table = await store.leases.read()
    assert [each.id for each in table.members] == [ME.id]
    assert table.leases.keys() == {"orders", "users"} - {damaged}
    assert table.leases["users"].owner == ME.id
    if damaged:
        (reason,) = table.unreadable.values()
        assert list(table.unreadable) == [damaged]
        assert f"{damaged!r}: the " in reason
        assert "cannot be read: " in reason
        assert "emove this record" in reason
        assert reason in await list_scopes(store, ["orders", "users"], NOW)
    await store.leases.release("users", ME.id, 1)
    assert (await store.leases.read()).leases["users"].free


@pytest.fixture
async def store(server: str, database: str) -> AsyncIterator[Store]:
    async with MongoBacking(server, database).open() as opened:
        await prepared(opened)
        yield opened


@pytest.mark.integration
@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_lease_in_mongodb_concerns_only_its_scope(
    store: Store, server: str, database: str, damage: str
) -> None:
    async with AsyncMongoClient[dict[str, Any]](server) as client:
        leases = client[database].leases
        await leases.update_one({"_id": "orders"}, DAMAGES[damage])
        await assert_works_beside_it(store, "orders")
        await leases.delete_one({"_id": "orders"})
    await store.leases.prepare(["orders"])
    table = await store.leases.read()
    assert not table.unreadable, "the remedy works"
    assert await store.leases.acquire(table.leases["orders"], ME.id, 8, 60)


@pytest.mark.integration
@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_foreign_document_in_mongodb_concerns_no_scope(
    store: Store, server: str, database: str, kind: str
) -> None:
    document = FOREIGN[kind]
    async with AsyncMongoClient[dict[str, Any]](server) as client:
        await client[database].leases.insert_one(document)
    name = document["_id"] if isinstance(document["_id"], str) else ""
    await assert_works_beside_it(store, name)


@pytest.mark.integration
async def test_a_member_repairs_its_own_record(store: Store, server: str, database: str) -> None:
    async with AsyncMongoClient[dict[str, Any]](server) as client:
        damaged = {"_id": f"member:{ME.id}", "joined": "then", "name": 5}
        await client[database].leases.insert_one(damaged)
    await assert_works_beside_it(store, "")


@pytest.mark.parametrize(
    "damage",
    [
        *("epoch = 'many'", f"epoch = {2**63 - 1}", "epoch = -1", "until = 'soon'"),
        *(
            "until = 9e999, boot = (SELECT max(boot) FROM leases)",
            "owner = x'ff'",
            "owner = CAST(x'ff' AS TEXT)",
            "wanted_by = x'00'",
        ),
        "boot = x'00'",
    ],
)
async def test_a_damaged_lease_in_sqlite_concerns_only_its_scope(path: Path, damage: str) -> None:
    async with SqliteBacking(path).open() as store:
        await prepared(store)
        execute(path, f"UPDATE leases SET {damage} WHERE scope = 'orders'")
        await assert_works_beside_it(store, "orders")
        execute(path, "DELETE FROM leases WHERE scope = 'orders'")
        await store.leases.prepare(["orders"])
        assert not (await store.leases.read()).unreadable


@pytest.mark.parametrize("damage", ["name = x'00'", "max_scopes = 'many'", "joined = 'then'"])
async def test_a_damaged_member_in_sqlite_is_ignored(path: Path, damage: str) -> None:
    async with SqliteBacking(path).open() as store:
        await prepared(store)
        await store.leases.renew("x", [], 60, Member("x", "x"))
        execute(path, f"UPDATE members SET {damage} WHERE id = 'x'")
        await assert_works_beside_it(store, "member:x")
