"""Change Streams specification, prose tests 1 to 9 (5 is removed): resuming.

Source: mongodb/specifications, source/change-streams/tests/README.md.
"""

from typing import Any

import pytest

from tailrace.errors import CommandFailed, DriverError, MissingResumeToken
from tailrace.model import Scope
from tailrace.stream import ChangeStream, ChangeStreamOptions
from tests.contract.streams import NS, connected, following, ids, position, read, read_batch, starts
from tests.mongod import ReplicaSet
from tests.scripted import RESUMABLE, ScriptedSet


async def test_prose_01_the_last_seen_token_is_tracked_all_the_time(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        for keys in ((1,), (2, 3), (4,)):
            scripted.insert_many(NS, keys)
            seen: list[Any] = []
            while len(seen) < len(keys):
                batch = await read_batch(stream)
                events = batch.events()
                assert batch.token == stream.resume_token
                seen += ids(events)
            assert seen == list(keys)


async def test_prose_02_a_missing_token_is_an_error_of_the_driver(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        scripted.append({"operationType": "insert"}, namespace=NS, omit=["_id"])
        with pytest.raises(MissingResumeToken, match="resume token is missing"):
            await read(stream, 1)
    assert len(scripted.commands("aggregate")) == 1


async def test_prose_02_mongod_says_so_too(mongod: ReplicaSet, database: str, name: str) -> None:
    options = ChangeStreamOptions(pipeline=({"$project": {"_id": 0}},), max_await_time_ms=50)
    scope = Scope("orders", database, "orders")
    async with (
        connected(name, mongod.uri) as driver,
        ChangeStream(driver, scope, options) as stream,
    ):
        with mongod.client() as client:
            client[database].orders.insert_one({"_id": 1})
        with pytest.raises((CommandFailed, MissingResumeToken)):
            await read(stream, 1)


@pytest.mark.parametrize("code", [43, 11602])
async def test_prose_03_one_resume_with_the_initial_pipeline_and_options(
    scripted: ScriptedSet, name: str, code: int
) -> None:
    options = ChangeStreamOptions(
        pipeline=({"$match": {"operationType": "insert"}},),
        full_document="updateLookup",
        batch_size=50,
        max_await_time_ms=30,
        comment="as before",
    )
    async with following(name, scripted, options) as stream:
        scripted.insert_many(NS, [1])
        assert ids(await read(stream, 1)) == [1]
        token = position(stream)
        scripted.fail("getMore", code=code, labels=[RESUMABLE])
        scripted.insert_many(NS, [2])
        assert ids(await read(stream, 1)) == [2]
    first, second = (command.document for command in scripted.commands("aggregate"))
    assert starts(scripted)[0] == {}
    unchanging = ("aggregate", "cursor", "comment", "lsid")
    assert {k: first[k] for k in unchanging} == {k: second[k] for k in unchanging}
    stages = [{**each["pipeline"][0]["$changeStream"]} for each in (first, second)]
    assert stages[1].pop("resumeAfter") == token
    assert stages[0] == stages[1]
    assert first["pipeline"][1:] == second["pipeline"][1:] == list(options.pipeline)


async def test_prose_03_a_resume_that_fails_is_not_tried_again(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        await stream.next_batch()
        scripted.fail("getMore", code=11602, labels=[RESUMABLE])
        scripted.fail("aggregate", code=11602, labels=[RESUMABLE])
        with pytest.raises(CommandFailed) as raised:
            await read(stream, 1)
    assert isinstance(raised.value.__cause__, DriverError)
    assert len(scripted.commands("aggregate")) == 2


@pytest.mark.parametrize("code", [43, 11602, 6])
async def test_prose_04_an_error_of_an_aggregate_is_not_resumed(
    scripted: ScriptedSet, name: str, code: int
) -> None:
    scripted.fail("aggregate", code=code, labels=[RESUMABLE])
    with pytest.raises(CommandFailed) as raised:
        async with following(name, scripted):
            pass
    assert raised.value.code == code
    assert len(scripted.commands("aggregate")) == 1


async def test_prose_04_nor_is_a_connection_that_breaks_in_it(
    scripted: ScriptedSet, name: str
) -> None:
    scripted.fail("aggregate", close_connection=True)
    with pytest.raises(DriverError):
        async with following(name, scripted):
            pass
    assert len(scripted.commands("aggregate")) == 1


@pytest.mark.parametrize("mode", ["primary", "secondary"])
async def test_prose_06_a_resume_selects_a_server_by_the_initial_read_preference(
    name: str, mode: str
) -> None:
    options = ChangeStreamOptions(max_await_time_ms=30, read_preference=mode)
    with ScriptedSet(members=3) as three:
        async with following(name, three, options) as stream:
            await stream.next_batch()
            (owner,) = (c.member for c in three.commands("aggregate"))
            successor = owner if mode == "secondary" else 2
            three.fail("getMore", code=11602, labels=[RESUMABLE], member=owner)
            three.elect(successor)
            three.insert(NS, {"_id": 1})
            assert ids(await read(stream, 1)) == [1]
        first, second = three.commands("aggregate")
        preferences = {str(c.document.get("$readPreference")) for c in (first, second)}
    assert len(preferences) == 1
    assert (second.member == three.primary) is (mode == "primary")
    assert second.member != first.member


async def test_prose_07_a_cursor_with_an_empty_first_batch_stays_open(
    scripted: ScriptedSet, name: str
) -> None:
    async with following(name, scripted) as stream:
        assert len(await stream.next_batch()) == 0
        assert len(await stream.next_batch()) == 0
        assert scripted.commands("killCursors") == []
        scripted.insert_many(NS, [1])
        assert ids(await read(stream, 1)) == [1]
    assert len(scripted.commands("aggregate")) == 1
    assert len(scripted.commands("killCursors")) == 1


@pytest.mark.parametrize("close", [True, False], ids=["no answer", "an error"])
async def test_prose_08_a_kill_that_fails_does_not_stop_the_resume(
    scripted: ScriptedSet, name: str, close: bool
) -> None:
    failing: Any = {"close_connection": True} if close else {"code": 13}
    kills = scripted.fail("killCursors", times=None, **failing)
    async with following(name, scripted) as stream:
        await stream.next_batch()
        scripted.fail("getMore", code=6, labels=[RESUMABLE])
        scripted.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
        await scripted.until("killCursors")
    assert kills.hits >= 1


@pytest.mark.parametrize("empty_reads", [0, 2])
async def test_prose_09_without_results_and_tokens_a_resume_starts_at_the_operation_time(
    scripted: ScriptedSet, name: str, empty_reads: int
) -> None:
    scripted.behave(post_batch_tokens=False)
    time = scripted.cluster_time
    async with following(name, scripted) as stream:
        scripted.noop(9)
        for _ in range(1 + empty_reads):
            await stream.next_batch()
        scripted.fail("getMore", code=43)
        scripted.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
    assert starts(scripted) == [{}, {"startAtOperationTime": time}]
