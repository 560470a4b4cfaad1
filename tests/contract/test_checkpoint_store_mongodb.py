"""The MongoDB store: what it sends, and what it makes of replies that are not simply good."""

from __future__ import annotations

import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from tailrace.checkpoints.mongodb import MongoStore
from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointFenced,
    CommandFailed,
    ConnectionFailed,
)
from tailrace.model.gap import Gap
from tests.contract.checkpoint_stores import NOW, Runner, checkpoint, gap
from tests.machine import free_port
from tests.mongod import ReplicaSet

DUPLICATE = {"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate"}]}
CONCERN = {"code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting timed out"}


class ScriptedRunner:
    """Answers each command with the next reply (or error) of the script, and keeps the commands."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self._script = list(script)
        self.commands: list[Mapping[str, Any]] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append({"$db": database, **command})
        reply = self._script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return {"ok": 1.0, **reply}


def found(*documents: Mapping[str, Any]) -> dict[str, Any]:
    return {"cursor": {"id": 0, "firstBatch": list(documents)}}


def stored(epoch: Any, sequence: Any) -> dict[str, Any]:
    return checkpoint().to_document() | {"_id": "orders", "epoch": epoch, "sequence": sequence}


@asynccontextmanager
async def scripted(*script: dict[str, Any] | Exception) -> AsyncIterator[MongoStore]:
    """A store on a script, all of which must be used up."""
    runner = ScriptedRunner(*script)
    async with MongoStore.open(runner, database="d", collection="c") as store:
        yield store
    assert not runner._script


class TestCommands:
    async def test_a_save_is_conditional_and_acknowledged_by_a_majority(self) -> None:
        runner = ScriptedRunner({"n": 1})
        async with MongoStore.open(runner, timeout_ms=700) as store:
            await store.save(checkpoint(epoch=3, sequence=4))
        assert runner.commands == [
            {
                "$db": "tailrace",
                "update": "checkpoints",
                "updates": [
                    {
                        "q": {
                            "_id": "orders",
                            "$or": [{"epoch": {"$lt": 3}}, {"epoch": 3, "sequence": {"$lt": 4}}],
                        },
                        "u": {"_id": "orders"} | checkpoint(epoch=3, sequence=4).to_document(),
                        "upsert": True,
                    }
                ],
                "writeConcern": {"w": "majority", "j": True, "wtimeout": 700},
            }
        ]

    async def test_a_load_waits_until_a_majority_has_all_and_is_bounded(self) -> None:
        runner = ScriptedRunner(found())
        async with MongoStore.open(runner, timeout_ms=700) as store:
            assert await store.load("orders") is None
        (command,) = runner.commands
        assert list(command)[1] == "find"
        assert command["filter"] == {"_id": "orders"}
        assert command["readConcern"] == {"level": "linearizable"}
        assert command["maxTimeMS"] == 700

    async def test_a_gap_is_added_and_never_changed_and_acknowledged_by_a_majority(self) -> None:
        runner = ScriptedRunner({"n": 1})
        async with MongoStore.open(runner, timeout_ms=700) as store:
            await store.record_gap(gap())
        assert runner.commands == [
            {
                "$db": "tailrace",
                "update": "checkpoints",
                "updates": [
                    {
                        "q": {"_id": f"gap:orders:{gap().digest}"},
                        "u": {"$setOnInsert": gap().to_document()},
                        "upsert": True,
                    }
                ],
                "writeConcern": {"w": "majority", "j": True, "wtimeout": 700},
            }
        ]

    async def test_gaps_are_those_that_a_majority_has(self) -> None:
        runner = ScriptedRunner(found())
        async with MongoStore.open(runner, timeout_ms=700) as store:
            assert list(await store.gaps("orders")) == []
        (command,) = runner.commands
        assert command["filter"] == {"_id": {"$gt": "gap:orders:", "$lt": "gap:orders;"}}
        assert command["readConcern"] == {"level": "majority"}
        assert command["maxTimeMS"] == 700

    async def test_opening_and_closing_send_nothing(self) -> None:
        async with scripted():
            pass


class TestReplies:
    async def test_a_duplicate_key_is_a_newer_record(self) -> None:
        async with scripted(DUPLICATE, found(stored(5, 2))) as store:
            with pytest.raises(
                CheckpointFenced, match=r"d\.c, scope 'orders': epoch 5, sequence 2"
            ):
                await store.save(checkpoint(epoch=5, sequence=2))

    async def test_a_duplicate_key_without_a_majority_is_one_too(self) -> None:
        async with scripted(
            DUPLICATE | {"writeConcernError": CONCERN}, found(stored(5, 2))
        ) as store:
            with pytest.raises(CheckpointFenced):
                await store.save(checkpoint())

    async def test_of_two_first_writes_the_greater_is_tried_again(self) -> None:
        """Its upsert met the lesser one, which was inserted between its search and its insert."""
        async with scripted(DUPLICATE, found(stored(1, 1)), {"n": 1}) as store:
            await store.save(checkpoint(epoch=1, sequence=2))

    async def test_a_record_that_is_gone_again_is_tried_again(self) -> None:
        async with scripted(DUPLICATE, found(), {"n": 1}) as store:
            await store.save(checkpoint())

    async def test_it_does_not_try_for_ever(self) -> None:
        async with scripted(*[DUPLICATE, found()] * 3) as store:
            with pytest.raises(CheckpointError, match="first writes") as caught:
                await store.save(checkpoint())
        assert type(caught.value) is CheckpointError

    @pytest.mark.parametrize("order", [("many", 1), (None, 1), (1.5, 1)])
    async def test_an_order_that_is_no_number_fences(self, order: tuple[Any, Any]) -> None:
        async with scripted(DUPLICATE, found(stored(*order))) as store:
            with pytest.raises(CheckpointFenced):
                await store.save(checkpoint(epoch=9))

    async def test_a_record_without_an_order_fences(self) -> None:
        async with scripted(DUPLICATE, found({"_id": "orders"})) as store:
            with pytest.raises(CheckpointFenced):
                await store.save(checkpoint(epoch=9))

    async def test_of_two_first_writes_of_a_gap_the_refused_one_waits_for_the_majority(
        self,
    ) -> None:
        """That the other one is there does not say that it stays: so it is written again."""
        refused = DUPLICATE | {"writeConcernError": CONCERN}
        async with scripted(refused, {"n": 1}) as store:
            await store.record_gap(gap())
        async with scripted(refused, {"n": 1, "writeConcernError": CONCERN}) as store:
            with pytest.raises(CheckpointError, match="not a majority"):
                await store.record_gap(gap())
        async with scripted(*[refused] * 3) as store:
            with pytest.raises(CheckpointError, match="met others of the same gap") as caught:
                await store.record_gap(gap())
        assert type(caught.value) is CheckpointError

    async def test_no_majority_in_time(self) -> None:
        async with scripted(*[{"n": 1, "writeConcernError": CONCERN}] * 2) as store:
            for writing in (store.save(checkpoint()), store.record_gap(gap())):
                with pytest.raises(CheckpointError, match=r"not a majority.*timed out") as caught:
                    await writing
                assert type(caught.value) is CheckpointError

    async def test_another_write_error(self) -> None:
        error = {"index": 0, "code": 121, "errmsg": "Document failed validation"}
        async with scripted(*[{"n": 0, "writeErrors": [error]}] * 3) as store:
            writes = (store.save(checkpoint()), store.reset("orders"), store.record_gap(gap()))
            for writing in writes:
                with pytest.raises(CheckpointError, match="failed validation") as caught:
                    await writing
                assert type(caught.value) is CheckpointError

    @pytest.mark.parametrize(
        "error",
        [CommandFailed("not authorized on d", code=13), ConnectionFailed("no server in 5 s")],
        ids=["command", "connection"],
    )
    async def test_a_driver_error_names_the_scope_and_is_chained(self, error: Exception) -> None:
        async with scripted(*[error] * 6) as store:
            calls = (
                store.load("orders"),
                store.save(checkpoint()),
                store.reset("orders"),
                store.list(),
                store.record_gap(gap()),
                store.gaps("orders"),
            )
            for call in calls:
                with pytest.raises(CheckpointError, match=r"^d\.c") as caught:
                    await call
                assert type(caught.value) is CheckpointError
                assert caught.value.__cause__ is error
                assert str(error) in str(caught.value)

    async def test_short_pages_do_not_end_a_list(self) -> None:
        """A server may send less than the limit; only an empty page is the end."""
        pages = [[checkpoint("a"), checkpoint("b")], [checkpoint("c")]]
        replies = [
            found(*({"_id": each.scope} | each.to_document() for each in page)) for page in pages
        ]
        async with scripted(*replies, found()) as store:
            assert [each.scope for each in await store.list()] == ["a", "b", "c"]


@pytest.mark.integration
class TestServer:
    @pytest.fixture
    async def client(self, server: str) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
        async with AsyncMongoClient(server, appname="checkpoints") as client:
            yield client

    @pytest.fixture
    async def store(self, client: AsyncMongoClient[dict[str, Any]]) -> AsyncIterator[MongoStore]:
        async with MongoStore.open(Runner(client), collection=f"c{uuid.uuid4().hex}") as store:
            yield store

    async def test_a_record_that_cannot_be_read(
        self, client: AsyncMongoClient[dict[str, Any]], store: MongoStore
    ) -> None:
        await store.save(checkpoint())
        records = client["tailrace"][store._records.collection]
        for damage in ({"format": 2}, {"high_water": 5}, {"scope": "users"}, {"saved_at": None}):
            await records.update_one({"_id": "orders"}, {"$set": damage})
            for reading in (store.load("orders"), store.list()):
                with pytest.raises(CheckpointCorrupt) as caught:
                    await reading
                where = f"tailrace.{store._records.collection}, scope 'orders'"
                assert str(caught.value).startswith(where)

    @pytest.mark.parametrize(
        "damage",
        [{"format": 2}, {"token": 5}, {"scope": "users"}, {"recorded_at": None}, {"until": [1]}],
        ids=str,
    )
    async def test_a_gap_that_cannot_be_read(
        self, client: AsyncMongoClient[dict[str, Any]], store: MongoStore, damage: dict[str, Any]
    ) -> None:
        await store.save(checkpoint())
        await store.record_gap(gap())
        await store.record_gap(gap("users"))
        key = f"gap:orders:{gap().digest}"
        records = client["tailrace"][store._records.collection]
        await records.update_one({"_id": key}, {"$set": damage})
        with pytest.raises(CheckpointCorrupt) as caught:
            await store.gaps("orders")
        where = f"{store._records}, scope 'orders', document '{key}': the gap record"
        assert str(caught.value).startswith(where)
        assert list(await store.gaps("users")) == [gap("users")]
        assert list(await store.list()) == [checkpoint()]

    async def test_others_documents_do_not_disturb(
        self, client: AsyncMongoClient[dict[str, Any]], store: MongoStore
    ) -> None:
        await client["tailrace"][store._records.collection].insert_one({"note": "an ObjectId's"})
        await store.save(checkpoint())
        await store.record_gap(gap())
        assert [each.scope for each in await store.list()] == ["orders"]
        assert list(await store.gaps("orders")) == [gap()]

    @pytest.mark.parametrize(
        "fault",
        [{"errorCode": 13}, {"closeConnection": True}, {"errorCode": 189}],
        ids=["unauthorized", "connection lost", "stepped down"],
    )
    async def test_a_failed_save_can_be_repeated_with_the_next_sequence(
        self, client: AsyncMongoClient[dict[str, Any]], store: MongoStore, fault: dict[str, Any]
    ) -> None:
        await store.save(checkpoint(sequence=1))
        await client.admin.command(
            "configureFailPoint",
            "failCommand",
            mode={"times": 1},
            data={"failCommands": ["update"], "appName": "checkpoints", **fault},
        )
        with pytest.raises(CheckpointError, match="scope 'orders'") as caught:
            await store.save(checkpoint(sequence=2))
        assert type(caught.value) is CheckpointError
        await store.save(checkpoint(sequence=3))
        assert await store.load("orders") == checkpoint(sequence=3)

    async def test_a_gap_whose_acknowledgement_was_lost_is_recorded_again(
        self, client: AsyncMongoClient[dict[str, Any]], store: MongoStore
    ) -> None:
        class Deaf(Runner):
            async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
                await super().run(database, command)
                raise ConnectionFailed("connection closed")

        async with MongoStore.open(Deaf(client), collection=store._records.collection) as deaf:
            with pytest.raises(CheckpointError, match="scope 'orders': connection closed"):
                await deaf.record_gap(gap())
        await store.record_gap(gap())
        assert list(await store.gaps("orders")) == [gap()]

    async def test_a_server_that_is_gone(self) -> None:
        async with (
            AsyncMongoClient("127.0.0.1", free_port(), serverSelectionTimeoutMS=1) as client,
            MongoStore.open(Runner(client)) as store,
        ):
            with pytest.raises(CheckpointError) as caught:
                await store.load("orders")
        assert isinstance(caught.value.__cause__, ConnectionFailed)

    async def test_a_killed_server_loses_nothing_that_was_saved(self, mortal: ReplicaSet) -> None:
        gaps: list[Gap] = []
        name = f"c{uuid.uuid4().hex}"
        for sequence in (1, 2, 3):
            async with (
                AsyncMongoClient(mortal.uri) as client,
                MongoStore.open(Runner(client), collection=name) as store,
            ):
                loaded = await store.load("orders")
                assert (loaded.sequence if loaded else 0) == sequence - 1
                assert list(await store.gaps("orders")) == gaps
                await store.save(checkpoint(sequence=sequence))
                gaps.append(gap(recorded_at=NOW + timedelta(hours=sequence)))
                await store.record_gap(gaps[-1])
            mortal.stop(signal.SIGKILL)
            mortal.start()
