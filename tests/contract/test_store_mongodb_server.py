"""The MongoDB store on a real server: damaged records, faults, kills."""

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from tailrace.cli.scopes import list_scopes
from tailrace.errors import (
    CheckpointError,
    DeadLetterError,
)
from tailrace.model.lease import Lease
from tailrace.stores import Store
from tailrace.stores.mongodb import open_store
from tests.contract.stores import (
    NOW,
    DeafRunner,
    MongoBacking,
    Runner,
    assert_unreadable,
    checkpoint,
    gap,
    key,
    letter,
)
from tests.mongod import ReplicaSet

pytestmark = pytest.mark.integration

Client = AsyncMongoClient[dict[str, Any]]


@pytest.fixture
async def client(server: str) -> AsyncIterator[Client]:
    async with AsyncMongoClient(server, appname="checkpoints") as client:
        yield client


@pytest.fixture
async def store(client: Client, database: str) -> AsyncIterator[Store]:
    async with open_store(Runner(client), database=database) as store:
        yield store


async def test_records_that_cannot_be_read(client: Client, store: Store, database: str) -> None:
    """Other scopes' records are still readable."""
    records = client[database]["checkpoints"]
    key = f"gap:orders:{gap().digest}"
    await store.checkpoints.record_gap(gap("users"))
    for damage in ({"format": 2}, {"scope": "users"}):
        await store.checkpoints.reset("orders")
        await records.delete_one({"_id": key})
        await store.checkpoints.save(checkpoint())
        await store.checkpoints.record_gap(gap())
        await records.update_many({"scope": "orders"}, {"$set": damage})
        where = f"{database}.checkpoints, scope 'orders'"
        told = f"{where}, document '{key}': the gap record"
        await assert_unreadable(store, "orders", where=where, gap=told)
    assert list(await store.checkpoints.gaps("users")) == [gap("users")]


@pytest.mark.parametrize(
    "fault",
    [{"closeConnection": True}, {"errorCode": 189}],
    ids=["connection lost", "stepped down"],
)
async def test_a_failed_save_can_be_repeated_with_the_next_sequence(
    client: Client, store: Store, fault: dict[str, Any]
) -> None:
    await store.checkpoints.save(checkpoint(sequence=1))
    await client.admin.command(
        "configureFailPoint",
        "failCommand",
        mode={"times": 1},
        data={"failCommands": ["update"], "appName": "checkpoints", **fault},
    )
    with pytest.raises(CheckpointError, match="scope 'orders'") as caught:
        await store.checkpoints.save(checkpoint(sequence=2))
    assert type(caught.value) is CheckpointError
    await store.checkpoints.save(checkpoint(sequence=3))
    assert await store.checkpoints.load("orders") == checkpoint(sequence=3)


async def test_what_was_stored_without_an_acknowledgement_is_stored_once(
    client: Client, store: Store, database: str
) -> None:
    async with open_store(DeafRunner(client), database=database) as deaf:
        with pytest.raises(CheckpointError, match="scope 'orders': connection closed"):
            await deaf.checkpoints.record_gap(gap())
        with pytest.raises(DeadLetterError, match="connection closed"):
            await deaf.dead_letters.add(letter())
        assert await deaf.dead_letters.holds("orders", "audit", key(1))
    await store.checkpoints.record_gap(gap())
    await store.dead_letters.add(letter())
    assert list(await store.checkpoints.gaps("orders")) == [gap()]
    assert await store.dead_letters.letters() == [letter()]


async def test_a_killed_server_loses_nothing_that_was_stored(
    mortal: ReplicaSet, database: str
) -> None:
    for n in (1, 2, 3):
        async with (
            AsyncMongoClient(mortal.uri) as client,
            open_store(Runner(client), database=database) as store,
        ):
            loaded = await store.checkpoints.load("orders")
            assert (loaded.sequence if loaded else 0) == n - 1
            assert len(await store.checkpoints.gaps("orders")) == n - 1
            assert await store.dead_letters.letters() == [letter(m) for m in range(1, n)]
            await store.checkpoints.save(checkpoint(sequence=n))
            await store.checkpoints.record_gap(gap(recorded_at=NOW + timedelta(hours=n)))
            await store.dead_letters.add(letter(n))
        mortal.stop(signal.SIGKILL)
        mortal.start()


@pytest.mark.parametrize("shared", [False, True])
async def test_an_account_that_only_reads_may_list_scopes(
    shared: bool, guarded: ReplicaSet, database: str
) -> None:
    role = {"role": "read", "db": database}
    with guarded.client() as root:
        root[database].command("createUser", "reader", pwd="right", roles=[role])
    if shared:
        async with MongoBacking(guarded.uri_as("root", "right"), database).open() as store:
            await store.leases.prepare(["orders"])
            await store.leases.acquire(Lease("orders"), "one/a1", 1, 60)
    uri = guarded.uri_as("reader", "right") + f"&authSource={database}"
    async with MongoBacking(uri, database).open() as store:
        text = await list_scopes(store, ["orders"], NOW)
    assert text.splitlines()[1].split()[:2] == ["orders", "one/a1" if shared else "nobody"]
