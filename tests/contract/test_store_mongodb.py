"""The MongoDB store: the commands that it sends, and how it handles errors and odd replies."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import bson
import pytest
from bson.timestamp import Timestamp
from pymongo import AsyncMongoClient

from tailrace.errors import (
    CheckpointError,
    CheckpointFenced,
    ConnectionFailed,
    DeadLetterError,
    LeaseError,
)
from tailrace.stores import Store
from tailrace.stores.mongodb import open_store
from tailrace.stores.mongodb_dead_letters import letter_id, to_document
from tests.contract.stores import NOW, checkpoint, gap, key, letter
from tests.guards import against_hanging

Client = AsyncMongoClient[dict[str, Any]]
DUPLICATE = {"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate"}]}
CONCERN = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
MAJORITY = {"w": "majority", "j": True, "wtimeout": 700}
WRITTEN = {"n": 1}


class ScriptedRunner:
    """Answers each command with the next reply or error of the script, and records the commands."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self.script = list(script)
        self.commands: list[Mapping[str, Any]] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append({"$db": database, **command})
        reply = self.script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return {"ok": 1.0, **reply}


@asynccontextmanager
async def scripted(
    *script: dict[str, Any] | Exception,
) -> AsyncIterator[tuple[Store, list[Mapping[str, Any]]]]:
    """A store on a script, which must be used up, and the recorded commands."""
    runner = ScriptedRunner(*script)
    async with open_store(runner, database="d", timeout_ms=700) as store:
        yield store, runner.commands
    assert not runner.script


def found(*documents: Mapping[str, Any]) -> dict[str, Any]:
    return {"cursor": {"id": 0, "firstBatch": list(documents)}}


SEALED = (found(), found(), WRITTEN)
"""The replies to a seal: no letter is there, no checkpoint, written."""
CLAIMED = (WRITTEN, *SEALED, WRITTEN, found())
"""The replies to a claim until it reads the keys: the index, the seal, what was removed, parts."""


def stored(epoch: Any, sequence: Any) -> dict[str, Any]:
    return checkpoint().to_document() | {"_id": "orders", "epoch": epoch, "sequence": sequence}


def kept(n: int = 1, **fields: Any) -> dict[str, Any]:
    """The document of a letter, as a driver returns it."""
    document = to_document(letter(n)) | {"sequence": Timestamp(1, n)}
    return bson.decode(bson.encode(document)) | fields


async def test_a_save_is_conditional_and_acknowledged_by_a_majority() -> None:
    async with scripted(WRITTEN) as (store, commands):
        await store.checkpoints.save(checkpoint(epoch=3, sequence=4))
    newer = [{"epoch": {"$lt": 3}}, {"epoch": 3, "sequence": {"$lt": 4}}]
    document = {"_id": "orders"} | checkpoint(epoch=3, sequence=4).to_document()
    update = {"q": {"_id": "orders", "$or": newer}, "u": document, "upsert": True}
    assert commands == [
        {"$db": "d", "update": "checkpoints", "updates": [update], "writeConcern": MAJORITY}
    ]


async def test_a_load_waits_until_a_majority_has_all_and_is_bounded() -> None:
    async with scripted(found()) as (store, commands):
        assert await store.checkpoints.load("orders") is None
    (command,) = commands
    assert command["filter"] == {"_id": "orders"}
    assert command["readConcern"] == {"level": "linearizable"}
    assert command["maxTimeMS"] == 700


async def test_lists_are_what_a_majority_has() -> None:
    """Short pages do not end a list: a server may send fewer than the limit."""
    records = [{"_id": each} | checkpoint(each).to_document() for each in "abc"]
    async with scripted(found(*records[:2]), found(records[2]), found()) as (store, commands):
        assert [each.scope for each in await store.checkpoints.list()] == ["a", "b", "c"]
        assert {command["readConcern"]["level"] for command in commands} == {"majority"}
    async with scripted(found()) as (store, commands):
        assert list(await store.checkpoints.gaps("orders")) == []
        assert commands[0]["filter"] == {"_id": {"$gt": "gap:orders:", "$lt": "gap:orders;"}}
        assert commands[0]["readConcern"] == {"level": "majority"}
    letters = (found(kept(1), kept(3)), found(kept(1)), found(kept(3)), found())
    async with scripted(*letters) as (store, commands):
        assert await store.dead_letters.letters() == [letter(1), letter(3)]
        assert {command["readConcern"]["level"] for command in commands} == {"majority"}
        assert commands[0]["sort"] == {"sequence": 1}
        assert "event" not in commands[0]["projection"]
        assert commands[-1]["filter"]["sequence"] == {"$gt": Timestamp(1, 3)}


async def test_keys_are_asked_for_by_ranges_of_the_index_without_events() -> None:
    async with scripted(found(), *CLAIMED, found(kept()), found()) as (store, commands):
        assert not await store.dead_letters.holds("orders", "audit", key(1))
        await store.dead_letters.claim("orders", 1)
        assert list(store.dead_letters.held("orders", "audit")) == [key(1)]
    prefix = letter_id(letter()).rpartition("/")[0]
    assert commands[0]["filter"]["_id"] == {"$gte": f"{prefix}/", "$lt": f"{prefix}0"}
    assert commands[0]["limit"] == 1
    assert set(commands[-2]["projection"]) == {"scope", "handler", "key"}


async def test_a_question_about_one_scope_waits_for_no_answer_about_another() -> None:
    class Silent(ScriptedRunner):
        """It never answers about the scope ``orders``."""

        async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
            while "orders/" in str(command):
                await anyio.sleep_forever()
            return await super().run(database, command)

    async with (
        open_store(Silent(found()), database="d") as store,
        anyio.create_task_group() as tasks,
    ):
        holds = store.dead_letters.holds
        tasks.start_soon(holds, "orders", "audit", key(1))
        await anyio.wait_all_tasks_blocked()
        with against_hanging():
            assert not await holds("users", "audit", key(1))
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("more", [{}, CONCERN], ids=["", "without a majority"])
async def test_a_reply_of_a_duplicate_key_means_a_newer_record(more: dict[str, Any]) -> None:
    async with scripted(DUPLICATE | more, found(stored(5, 2))) as (store, _):
        message = r"d\.checkpoints, scope 'orders': epoch 5, sequence 2"
        with pytest.raises(CheckpointFenced, match=message):
            await store.checkpoints.save(checkpoint(epoch=5, sequence=2))


@pytest.mark.parametrize("there", [[stored(1, 1)], []], ids=["lesser", "gone again"])
async def test_the_greater_of_two_first_writes_is_tried_again(there: list[Any]) -> None:
    """Its upsert collided with the lesser one, inserted between its search and its insert."""
    async with scripted(DUPLICATE, found(*there), WRITTEN) as (store, _):
        await store.checkpoints.save(checkpoint(epoch=1, sequence=2))
    async with scripted(*[DUPLICATE, found()] * 3) as (store, _):
        with pytest.raises(CheckpointError, match="first writes"):
            await store.checkpoints.save(checkpoint())


async def test_a_stored_order_that_is_not_a_number_fences() -> None:
    async with scripted(DUPLICATE, found(stored("many", 1))) as (store, _):
        with pytest.raises(CheckpointFenced):
            await store.checkpoints.save(checkpoint(epoch=9))


async def test_a_refused_first_write_of_a_gap_waits_for_the_majority() -> None:
    """The other gap exists, but may be rolled back; so the write is repeated."""
    refused = DUPLICATE | CONCERN
    async with scripted(refused, WRITTEN) as (store, _):
        await store.checkpoints.record_gap(gap())
    async with scripted(*[refused] * 3) as (store, _):
        with pytest.raises(CheckpointError, match="met others of the same gap"):
            await store.checkpoints.record_gap(gap())


async def test_a_write_without_a_majority_in_time_is_an_error() -> None:
    unsure = WRITTEN | CONCERN
    async with scripted(unsure, unsure, *SEALED, unsure) as (store, _):
        for writing in (
            store.checkpoints.save(checkpoint()),
            store.checkpoints.record_gap(gap()),
        ):
            with pytest.raises(CheckpointError, match=r"not a majority within 700 ms") as error:
                await writing
            assert type(error.value) is CheckpointError
        with pytest.raises(DeadLetterError, match="not a majority within 700 ms"):
            await store.dead_letters.add(letter(), 1)
        # The letter may be stored, so its key counts as held until the store has been read.
        assert list(store.dead_letters.held("orders", "audit")) == [key(1)]


@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
async def test_a_duplicate_key_of_one_write_hides_no_other_error_of_its_command(order: int) -> None:
    errors = [{"index": 0, "code": 11000}, {"index": 1, "code": 121, "errmsg": "not valid"}]
    async with scripted({"n": 1, "writeErrors": errors[::order]}) as (store, _):
        with pytest.raises(LeaseError, match=r"^d\.leases: not valid"):
            await store.leases.prepare(["orders", "users"])


async def test_an_error_names_the_collection_and_the_cause() -> None:
    invalid = {"n": 0, "writeErrors": [{"code": 121, "errmsg": "Document failed validation"}]}
    error = ConnectionFailed("no server")
    async with scripted(*[invalid] * 3, *SEALED, invalid, *[error] * 7) as (store, _):
        checkpoints, letters = store.checkpoints, store.dead_letters
        calls: list[tuple[type[Exception], Any]] = [
            (CheckpointError, checkpoints.save(checkpoint())),
            (CheckpointError, checkpoints.reset("orders")),
            (CheckpointError, checkpoints.record_gap(gap())),
            (DeadLetterError, letters.add(letter(), 1)),
            (CheckpointError, checkpoints.load("orders")),
            (CheckpointError, checkpoints.list()),
            (CheckpointError, checkpoints.gaps("orders")),
            (DeadLetterError, letters.resolve(letter(), "replayed")),
            (DeadLetterError, letters.letters()),
            (DeadLetterError, letters.holds("orders", "audit", key(1))),
            (DeadLetterError, letters.claim("orders", 1)),
        ]
        message = r"^d\.(checkpoints|dead_letters).*: (Document failed validation|no server)"
        for kind, call in calls:
            with pytest.raises(kind, match=message) as caught:
                await call
            assert type(caught.value) is kind
            assert caught.value.__cause__ in (None, error)


@pytest.mark.parametrize(
    "damage",
    [{"letter": "0" * 12}, {"at": NOW}, {"sequence": None}, {"key": 5}],
    ids=str,
)
async def test_a_dead_letter_that_cannot_be_read_is_named(damage: dict[str, Any]) -> None:
    where = r"^d\.dead_letters, document 'orders/audit/.*cannot be read"
    damaged = (found(kept(**damage)), found())
    page = found(kept(**damage), kept(2))
    async with scripted(page, found(kept(2)), page, *CLAIMED, *damaged) as (store, _):
        bad, good = await store.dead_letters.heads()
        assert re.match(where, bad.unreadable)
        assert await store.dead_letters.read(good) == letter(2)
        with pytest.raises(DeadLetterError, match=where):
            await store.dead_letters.letters()
        if "key" in damage:
            with pytest.raises(DeadLetterError, match=where):
                await store.dead_letters.claim("orders", 1)
        else:
            await store.dead_letters.claim("orders", 1)


async def test_a_late_reply_does_not_undo_what_was_added_since() -> None:
    """The answer that no letter is held is in flight while a letter is added."""

    class Slow(ScriptedRunner):
        async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
            reply = await super().run(database, command)
            for _ in range(10):
                await asyncio.sleep(0)
            return reply

    async with open_store(Slow(found(), *SEALED, WRITTEN)) as store:
        letters = store.dead_letters
        await asyncio.gather(letters.holds("orders", "audit", key(1)), letters.add(letter(), 1))
        assert list(letters.held("orders", "audit")) == [key(1)]
