"""The collection of dead letters: what is sent, and what is made of replies that are not good."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import bson
import pytest
from bson.binary import Binary
from pymongo import AsyncMongoClient

from tailrace.dead_letters.mongodb import MongoDeadLetters
from tailrace.dead_letters.packing import path_of, prefix_of, to_document
from tailrace.errors import CommandFailed, ConnectionFailed, DeadLetterError
from tests.contract.checkpoint_stores import Runner
from tests.contract.dead_letter_stores import AT, key, letter
from tests.mongod import ReplicaSet

DUPLICATE = {"n": 0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "E11000 duplicate"}]}
CONCERN = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
MAJORITY = {"w": "majority", "j": True, "wtimeout": 700}
WRITTEN = {"n": 1}


class ScriptedRunner:
    """Answers each command with the next reply (or error) of the script, and keeps the commands."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self.script = list(script)
        self.commands: list[Mapping[str, Any]] = []

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        self.commands.append({"$db": database, **command})
        reply = self.script.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return {"ok": 1.0, **reply}


def found(*documents: Mapping[str, Any]) -> dict[str, Any]:
    return {"cursor": {"id": 0, "firstBatch": list(documents)}}


def number(n: int) -> dict[str, Any]:
    return {"value": {"_id": "sequence", "last": n}}


def stored(n: int = 1, **fields: Any) -> dict[str, Any]:
    """The document of a letter, as a driver gives it back."""
    return bson.decode(bson.encode(to_document(letter(n), path_of(letter(n)), n))) | fields


@asynccontextmanager
async def scripted(
    *script: dict[str, Any] | Exception, first: dict[str, Any] | None = None
) -> AsyncIterator[tuple[MongoDeadLetters, list[Mapping[str, Any]]]]:
    """A store on a script, all of which must be used up, and its commands behind the first."""
    runner = ScriptedRunner(found() if first is None else first, *script)
    async with MongoDeadLetters.open(runner, database="d", collection="c", timeout_ms=700) as store:
        runner.commands.clear()
        yield store, runner.commands
    assert not runner.script


class TestCommands:
    async def test_opening_asks_for_the_keys_and_for_no_event(self) -> None:
        runner = ScriptedRunner(found(stored(1)), found())
        async with MongoDeadLetters.open(runner) as store:
            assert list(store.held("orders", "audit")) == [key(1)]
        command = runner.commands[0]
        assert (command["$db"], command["find"]) == ("tailrace", "dead_letters")
        assert set(command["projection"]) == {"letter", "scope", "handler", "key"}

    async def test_a_letter_is_numbered_and_then_acknowledged_by_a_majority(self) -> None:
        async with scripted(number(7), WRITTEN) as (store, commands):
            await store.add(letter())
        one, two = commands
        assert one == {
            "$db": "d",
            "findAndModify": "c",
            "query": {"_id": "sequence"},
            "update": {"$inc": {"last": 1}},
            "upsert": True,
            "new": True,
            "writeConcern": MAJORITY,
        }
        (update,) = two["updates"]
        path = prefix_of("orders", "audit", key(1)) + letter().id
        assert two["writeConcern"] == MAJORITY
        assert update["q"] == {"_id": path, "resolved_at": {"$exists": True}}
        assert update["upsert"] is True
        assert update["u"]["_id"] == path
        assert update["u"]["sequence"] == 7
        assert update["u"]["event"] == Binary(letter().raw)

    async def test_a_letter_that_waits_already_is_left_as_it_is_once_a_majority_has_it(
        self,
    ) -> None:
        async with scripted(number(8), DUPLICATE, WRITTEN) as (store, commands):
            await store.add(letter())
        (update,) = commands[2]["updates"]
        assert update == {"q": {"_id": path_of(letter())}, "u": {"$set": {"letter": letter().id}}}
        assert commands[2]["writeConcern"] == MAJORITY

    async def test_the_question_for_a_key_is_a_range_of_the_index(self) -> None:
        async with scripted(found()) as (store, commands):
            assert not await store.holds("orders", "audit", key(1))
        prefix = prefix_of("orders", "audit", key(1))
        assert commands[0]["filter"]["_id"] == {"$gte": prefix, "$lt": prefix[:-1] + "0"}
        assert commands[0]["limit"] == 1

    async def test_letters_are_those_that_a_majority_has(self) -> None:
        """Short pages do not end them: a server may send less than the limit."""
        pages = [found(stored(3)), found(stored(1), stored(2)), found()]
        async with scripted(*pages) as (store, commands):
            assert await store.letters() == [letter(1), letter(2), letter(3)]
        assert [command["readConcern"] for command in commands] == [{"level": "majority"}] * 3


class TestReplies:
    async def test_of_another_that_took_the_first_number_at_once(self) -> None:
        refused = CommandFailed("E11000", code=11000)
        async with scripted(refused, {"value": None}, number(2), WRITTEN) as (store, _):
            await store.add(letter())
        async with scripted(refused, refused, refused) as (store, _):
            with pytest.raises(DeadLetterError, match="E11000"):
                await store.add(letter())
        async with scripted(*[{"value": None}] * 3) as (store, _):
            with pytest.raises(DeadLetterError, match="no number"):
                await store.add(letter())

    async def test_of_a_driver_that_fails_name_the_scope_and_are_chained(self) -> None:
        error = ConnectionFailed("no server in 5 s")
        async with scripted(*[error] * 5) as (store, _):
            calls = (
                store.add(letter()),
                store.resolve(letter(), "replayed"),
                store.letters(),
                store.holds("orders", "audit", key(1)),
                store.refresh(),
            )
            for call in calls:
                with pytest.raises(DeadLetterError, match=r"^d\.c.*no server in 5 s") as caught:
                    await call
                assert caught.value.__cause__ is error

    async def test_without_a_majority_are_errors(self) -> None:
        async with scripted(number(1), WRITTEN | CONCERN) as (store, _):
            with pytest.raises(DeadLetterError, match="not a majority within 700 ms"):
                await store.add(letter())
            # It may be stored: until somebody has looked, its key counts as held.
            assert list(store.held("orders", "audit")) == [key(1)]

    async def test_with_other_write_errors_are_errors(self) -> None:
        error = {"writeErrors": [{"code": 17419, "errmsg": "Resulting document is too large"}]}
        async with scripted(number(1), error) as (store, _):
            with pytest.raises(DeadLetterError, match="handler 'audit': Resulting document"):
                await store.add(letter())

    @pytest.mark.parametrize(
        "damage",
        [
            {"event": b"no BSON"},
            {"event": letter(2).raw},
            {"event": "text"},
            {"letter": "0" * 12},
            {"scope": "users"},
            {"at": AT},
            {"attempts": -1},
            {"sequence": None},
        ],
        ids=str,
    )
    async def test_with_a_letter_that_cannot_be_read(self, damage: dict[str, Any]) -> None:
        async with scripted(found(stored(**damage)), found()) as (store, _):
            with pytest.raises(DeadLetterError, match=r"^d\.c, document 'orders/audit/.*Mend it"):
                await store.letters()

    @pytest.mark.parametrize("damage", [{"key": b"?"}, {"key": 5}, {"letter": None}], ids=str)
    async def test_with_a_key_that_cannot_be_read(self, damage: dict[str, Any]) -> None:
        with pytest.raises(DeadLetterError, match=r"^d\.c, document 'orders/audit/"):
            async with scripted(found(), first=found(stored(**damage))):
                raise AssertionError("it was opened")

    async def test_that_come_late_do_not_undo_what_was_added_since(self) -> None:
        """An answer that nothing is held, under way while a letter is added."""

        class Slow(ScriptedRunner):
            async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
                reply = await super().run(database, command)
                for _ in range(10):
                    await asyncio.sleep(0)
                return reply

        runner = Slow(found(), found(), number(1), WRITTEN)
        async with MongoDeadLetters.open(runner) as store:
            await asyncio.gather(store.holds("orders", "audit", key(1)), store.add(letter(1)))
            assert list(store.held("orders", "audit")) == [key(1)]


@pytest.mark.integration
class TestServer:
    async def test_what_was_resolved_stays_as_a_record(self, server: str) -> None:
        name = f"d{uuid.uuid4().hex}"
        async with (
            AsyncMongoClient(server) as client,
            MongoDeadLetters.open(Runner(client), collection=name) as store,
        ):
            await store.add(letter())
            await store.resolve(letter(), "discarded")
            kept = await client["tailrace"][name].find_one({"_id": path_of(letter())})
        assert kept is not None
        assert kept["how"] == "discarded"
        assert kept["resolved_at"] is not None
        assert (kept["operation"], kept["ns"]) == ("insert", "shop.orders")

    async def test_an_acknowledgement_that_was_lost(self, server: str) -> None:
        class Deaf(Runner):
            async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
                reply = await super().run(database, command)
                if next(iter(command)) == "update":
                    raise ConnectionFailed("connection closed")
                return reply

        name = f"d{uuid.uuid4().hex}"
        async with AsyncMongoClient(server) as client:
            async with MongoDeadLetters.open(Deaf(client), collection=name) as deaf:
                with pytest.raises(DeadLetterError, match="connection closed"):
                    await deaf.add(letter())
                assert key(1) in deaf.held("orders", "audit")
                assert await deaf.holds("orders", "audit", key(1))
            async with MongoDeadLetters.open(Runner(client), collection=name) as store:
                await store.add(letter())
                assert await store.letters() == [letter()]

    async def test_a_killed_server_loses_nothing_that_was_added(self, mortal: ReplicaSet) -> None:
        name = f"d{uuid.uuid4().hex}"
        for n in (1, 2, 3):
            async with (
                AsyncMongoClient(mortal.uri) as client,
                MongoDeadLetters.open(Runner(client), collection=name) as store,
            ):
                assert await store.letters() == [letter(m) for m in range(1, n)]
                await store.add(letter(n))
            mortal.stop(signal.SIGKILL)
            mortal.start()
