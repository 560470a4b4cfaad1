"""The MongoDB store on a real server: damaged records, faults, kills."""

import signal
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import bson
import pytest
from pymongo import AsyncMongoClient

from tailrace.cli.scope_leases import list_scopes
from tailrace.errors import (
    CheckpointError,
    ConnectionFailed,
    DeadLetterError,
)
from tailrace.model.desired_state import DesiredState
from tailrace.model.lease import Lease, Member
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
from tests.unit.engine.changes import change

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


async def test_a_record_in_mongodb_that_cannot_be_read_is_named(
    client: Client, store: Store, database: str
) -> None:
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
        message = f"{where}, document '{key}': the gap record"
        await assert_unreadable(store, "orders", where=where, gap=message)
    assert list(await store.checkpoints.gaps("users")) == [gap("users")]


async def test_an_unreadable_or_foreign_order_hides_no_other(
    client: Client, store: Store, database: str
) -> None:
    for scope in ("orders", "users"):
        await store.desired_states.write(DesiredState(scope, 1, paused=True, by="ann", at=NOW))
    records = client[database]["desired_states"]
    await records.update_one({"_id": "orders"}, {"$set": {"format": 2}})
    await records.insert_many([{"_id": "a note"}, {"text": "another note"}])
    table = await store.desired_states.list()
    assert [desired.scope for desired in table.states] == ["users"]
    assert set(table.unreadable) == {"a note", "orders"}
    where = f"{database}.desired_states, scope 'orders': the desired state"
    assert table.unreadable["orders"].startswith(where)


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
    runner = DeafRunner(client)
    async with open_store(runner, database=database) as deaf:
        await deaf.dead_letters.claim("orders", 1)
        runner.deaf = True
        with pytest.raises(CheckpointError, match="scope 'orders': connection closed"):
            await deaf.checkpoints.record_gap(gap())
        with pytest.raises(DeadLetterError, match="connection closed"):
            await deaf.dead_letters.add(letter(), 1)
        assert await deaf.dead_letters.holds("orders", "audit", key(1))
    await store.checkpoints.record_gap(gap())
    await store.dead_letters.add(letter(), 1)
    assert list(await store.checkpoints.gaps("orders")) == [gap()]
    assert await store.dead_letters.letters() == [letter()]


class LateRunner(Runner):
    """A write of a dead letter without an answer: the server executes it when it is told to."""

    late: Mapping[str, Any] | None = None

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        if command.get("update") == "dead_letters" and "$set" in command["updates"][0]["u"]:
            self.late = command
            raise ConnectionFailed("connection closed")
        return await super().run(database, command)


@pytest.mark.parametrize("resolved", [False, True], ids=["first", "resolved before"])
async def test_a_letter_that_the_server_executes_after_the_next_claim_is_not_stored(
    client: Client, store: Store, database: str, resolved: bool
) -> None:
    runner = LateRunner(client)
    async with open_store(runner, database=database) as former:
        await former.checkpoints.claim("orders", 1)
        await former.dead_letters.claim("orders", 1)
        await store.dead_letters.add(letter(0), 1)
        if resolved:
            await store.dead_letters.add(letter(1), 1)
            await store.dead_letters.resolve(letter(1), "replayed")
        with pytest.raises(DeadLetterError, match="connection closed"):
            await former.dead_letters.add(letter(1), 1)
        assert runner.late is not None
    await store.checkpoints.claim("orders", 2)
    await store.dead_letters.claim("orders", 2)
    answer = await client[database].command(dict(runner.late))
    assert answer["writeErrors"][0]["code"] == 11000
    await store.dead_letters.add(letter(2), 2)
    assert await store.dead_letters.letters() == [letter(0), letter(2)]


LARGE = letter(1, raw=bson.encode(change(1, fullDocument={"text": "x" * 9_000_000})))
"""Kept in three parts."""


async def test_parts_of_a_letter_that_was_not_written_are_resolved_by_the_next_claim(
    client: Client, store: Store, database: str
) -> None:
    """As after a kill between the parts and their letter; the next owner adds the letter again."""
    parts = client[database]["dead_letters"]
    async with open_store(LateRunner(client), database=database) as former:
        await former.checkpoints.claim("orders", 1)
        await former.dead_letters.claim("orders", 1)
        with pytest.raises(DeadLetterError, match="connection closed"):
            await former.dead_letters.add(LARGE, 1)
    assert await store.dead_letters.letters() == []
    assert await store.dead_letters.count() == {}
    await store.checkpoints.claim("orders", 2)
    await store.dead_letters.claim("orders", 2)
    await store.dead_letters.add(LARGE, 2)
    await store.dead_letters.claim("orders", 2)
    assert await store.dead_letters.letters() == [LARGE]
    resolved = {"bytes": {"$exists": True}, "resolved_at": {"$exists": True}}
    assert await parts.count_documents(resolved) == 3
    assert await parts.count_documents({"bytes": {"$exists": True}}) == 6


async def test_parts_are_resolved_with_their_letter(
    client: Client, store: Store, database: str
) -> None:
    """An index on resolved_at removes all of them; the letter can come again meanwhile."""
    found = client[database]["dead_letters"]
    await store.dead_letters.claim("orders", 1)
    await store.dead_letters.add(LARGE, 1)
    await store.dead_letters.add(LARGE, 1)
    assert await store.dead_letters.resolve(LARGE, "replayed")
    await store.dead_letters.claim("orders", 1)
    assert {"resolved_at"} <= set.intersection(
        *[set(each) async for each in found.find({"sealed_at": {"$exists": False}})]
    )
    await store.dead_letters.add(LARGE, 1)
    await found.delete_many({"resolved_at": {"$exists": True}})
    assert await store.dead_letters.letters() == [LARGE]
    await found.delete_one({"bytes": {"$exists": True}})
    with pytest.raises(DeadLetterError, match="parts of its event are missing"):
        await store.dead_letters.letters()


@pytest.mark.parametrize("late", ["at once", "after the next"])
async def test_an_unanswered_letter_of_this_owner_does_not_come_after_its_next_one(
    client: Client, store: Store, database: str, late: str
) -> None:
    """It is there in its place, or it is refused: then its event comes again."""
    runner = LateRunner(client)
    async with open_store(runner, database=database) as unsure:
        await unsure.dead_letters.claim("orders", 1)
        with pytest.raises(DeadLetterError, match="connection closed"):
            await unsure.dead_letters.add(letter(1), 1)
        assert runner.late is not None
        command, runner.late = dict(runner.late), None
        if late == "at once":
            await client[database].command(command)
        with pytest.raises(DeadLetterError, match="connection closed"):
            await unsure.dead_letters.add(letter(2), 1)
        assert runner.late is not None
        await client[database].command(dict(runner.late))
        if late == "after the next":
            await client[database].command(command)
    kept = [letter(1), letter(2)] if late == "at once" else [letter(2)]
    assert await store.dead_letters.letters() == kept


async def test_the_next_number_of_a_scope_is_found_by_the_index(
    client: Client, store: Store, database: str
) -> None:
    await store.dead_letters.claim("orders", 1)
    for n in range(20):
        await store.dead_letters.add(letter(n), 1)
    last: list[Mapping[str, Any]] = [
        {"$match": {"scope": "orders", "number": {"$type": "long"}}},
        {"$sort": {"number": -1}},
        {"$limit": 1},
    ]
    explained = await client[database].command(
        "explain",
        {"aggregate": "dead_letters", "pipeline": last, "cursor": {}},
        verbosity="executionStats",
    )
    found = explained.get("executionStats") or explained["stages"][0]["$cursor"]["executionStats"]
    assert found["totalDocsExamined"] == 1


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
            await store.dead_letters.add(letter(n), 1)
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
            await store.leases.renew("one/a1", ["orders"], 60, Member("one/a1", "one"))
    uri = guarded.uri_as("reader", "right") + f"&authSource={database}"
    async with MongoBacking(uri, database).open() as store:
        text = await list_scopes(store, ["orders"], NOW)
    assert text.splitlines()[1].split()[:2] == ["orders", "one" if shared else "nobody"]
