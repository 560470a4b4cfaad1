"""What the scripted server can be told to do beyond what mongod shows, with a real driver.

Its ordinary answers are compared with mongod's in test_scripted_like_mongod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pymongo
import pytest
from bson.timestamp import Timestamp
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure

from tests.scripted import Command, ScriptedSet, ServerError, is_high_water, token_time

Client = pymongo.MongoClient[dict[str, Any]]

ORDERS = "shop.orders"


def connect(server: ScriptedSet, **options: Any) -> Client:
    return pymongo.MongoClient(server.uri, **{"heartbeatFrequencyMS": 500, **options})


@pytest.fixture
def client(scripted: ScriptedSet) -> Iterator[Client]:
    with connect(scripted) as connected:
        yield connected


def keys(stream: Any, count: int) -> list[Any]:
    return [next(stream)["documentKey"]["_id"] for _ in range(count)]


def open_without_events(client: Client, stage: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The cursor of a stream that is opened as the service does it."""
    pipeline = [{"$changeStream": stage}]
    cursor: dict[str, Any] = client.shop.command(
        "aggregate", "orders", pipeline=pipeline, cursor={"batchSize": 0}, **fields
    )["cursor"]
    return cursor


class TestOplog:
    def test_a_reply_holds_no_more_bytes_than_it_may_but_at_least_one_event(
        self, scripted: ScriptedSet, client: Client
    ) -> None:
        scripted.behave(reply_bytes=1_000_000)
        big = {"payload": "x" * 600_000}
        with client.shop.orders.watch() as stream:
            scripted.extend(
                [
                    {"operationType": "insert", "documentKey": {"_id": n}, "fullDocument": big}
                    for n in range(3)
                ]
            )
            assert keys(stream, 3) == [0, 1, 2]
        assert len(scripted.commands("getMore")) == 3

    def test_fragments_have_a_token_each_and_one_cluster_time(
        self, scripted: ScriptedSet, client: Client
    ) -> None:
        parts: list[dict[str, Any]] = [{"operationType": "update"}, {"updateDescription": {}}]
        with client.shop.orders.watch() as stream:
            tokens = scripted.append_fragments(parts, namespace=ORDERS)
            seen = [next(stream) for _ in parts]
        assert [e["splitEvent"] for e in seen] == [{"fragment": n, "of": 2} for n in (1, 2)]
        assert [e["_id"] for e in seen] == tokens
        assert len({token_time(token) for token in tokens}) == 1

    def test_idle_tokens_advance_with_time(self, scripted: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch(max_await_time_ms=1) as stream:
            now = scripted.noop(seconds=10)
            assert stream.try_next() is None
            token = stream.resume_token
        assert token is not None
        assert is_high_water(token)
        assert token_time(token) == now

    def test_time_never_goes_backwards(self, scripted: ScriptedSet) -> None:
        with pytest.raises(ValueError, match="start_seconds"):
            scripted.append({"operationType": "insert", "clusterTime": Timestamp(1, 1)})

    @pytest.mark.parametrize("command", ["aggregate", "getMore"])
    def test_lost_history_shows_on_the_aggregate_or_on_the_first_getmore(
        self, scripted: ScriptedSet, client: Client, command: str
    ) -> None:
        scripted.behave(history_lost_on="reading" if command == "aggregate" else command)
        old = scripted.insert(ORDERS)
        scripted.truncate_oplog()
        with (
            pytest.raises(OperationFailure) as caught,
            client.shop.orders.watch(resume_after=old) as stream,
        ):
            next(stream)
        assert caught.value.code == 286
        assert bool(scripted.commands("getMore")) == (command == "getMore")

    @pytest.mark.parametrize("limit", ["the server's default", "the command's own"])
    def test_it_searches_in_get_more_where_no_time_limit_cuts_it(
        self, scripted: ScriptedSet, client: Client, limit: str
    ) -> None:
        own = {"maxTimeMS": 50} if limit == "the command's own" else {}
        scripted.behave(scan_seconds=0.2, default_max_time_ms=0 if own else 50)
        start = {"startAtOperationTime": scripted.cluster_time}
        scripted.insert(ORDERS, {"_id": 1})
        pipeline = [{"$changeStream": start}]
        with pytest.raises(OperationFailure) as caught:
            client.shop.command("aggregate", "orders", pipeline=pipeline, cursor={}, **own)
        assert caught.value.code == 50
        opened = open_without_events(client, start, **own)
        reply = client.shop.command("getMore", opened["id"], collection="orders", maxTimeMS=1)
        assert len(reply["cursor"]["nextBatch"]) == 1


class TestFaults:
    def test_they_skip_count_and_end(self, scripted: ScriptedSet, client: Client) -> None:
        armed = scripted.fail("ping", skip=1, times=2, code=2, message="as scripted")
        outcomes = []
        for _ in range(4):
            try:
                outcomes.append(client.admin.command("ping")["ok"])
            except OperationFailure as error:
                outcomes.append(error.code)
        assert outcomes == [1.0, 2, 2, 1.0]
        assert armed.hits == 2

    def test_one_without_a_count_lasts_until_cleared(
        self, scripted: ScriptedSet, client: Client
    ) -> None:
        scripted.fail("ping", times=None, code=2, where=lambda c: c.database == "shop")
        for _ in range(3):
            with pytest.raises(OperationFailure):
                client.shop.command("ping")
        assert client.admin.command("ping")["ok"] == 1.0
        scripted.clear_faults()
        assert client.shop.command("ping")["ok"] == 1.0

    def test_a_silent_server_lets_the_client_run_into_its_own_timeout(
        self, scripted: ScriptedSet
    ) -> None:
        scripted.fail("ping", silent=True)
        with connect(scripted, socketTimeoutMS=150) as client, pytest.raises(NetworkTimeout):
            client.admin.command("ping")

    def test_a_hook_answers_in_place_of_the_server(
        self, scripted: ScriptedSet, client: Client
    ) -> None:
        def hook(command: Command) -> Mapping[str, Any] | None:
            if command.name == "ping":
                raise ServerError(13, "not for you")
            return {"answer": 42} if command.name == "ask" else None

        remove = scripted.on_command(hook)
        assert client.admin.command("ask")["answer"] == 42
        with pytest.raises(OperationFailure, match="not for you"):
            client.admin.command("ping")
        remove()
        assert client.admin.command("ping")["ok"] == 1.0

    def test_a_hook_that_crashes_is_told_at_the_end(self) -> None:
        def hook(command: Command) -> None:
            if command.name == "ping":
                raise KeyError("a bug of the test")

        def ping_with_bug() -> None:
            with ScriptedSet() as server, connect(server) as client:
                server.on_command(hook)
                with pytest.raises(AutoReconnect):
                    client.admin.command("ping")

        with pytest.raises(ExceptionGroup, match="a hook failed"):
            ping_with_bug()


class TestMembers:
    @pytest.fixture
    def three(self) -> Iterator[ScriptedSet]:
        with ScriptedSet(members=3) as running:
            yield running

    def test_an_election_moves_the_stream(self, three: ScriptedSet) -> None:
        with connect(three) as client, client.shop.orders.watch() as stream:
            three.insert(ORDERS, {"_id": 1})
            assert keys(stream, 1) == [1]
            three.step_down(successor=2, interrupt=10107)
            three.insert(ORDERS, {"_id": 2})
            assert keys(stream, 1) == [2]
        assert [c.member for c in three.commands("aggregate")] == [0, 2]

    def test_a_cursor_of_another_member_is_not_found(self, three: ScriptedSet) -> None:
        with connect(three) as client:
            opened = open_without_events(client, {})
            more = {"getMore": opened["id"], "collection": "orders"}
            with pytest.raises(pymongo.errors.CursorNotFound):
                client.shop.command(more, read_preference=pymongo.ReadPreference.SECONDARY)

    def test_a_member_stops_and_comes_back(self, three: ScriptedSet) -> None:
        # PyMongo waits this long for the cursor's own member to return before it resumes.
        with (
            connect(three, serverSelectionTimeoutMS=500) as client,
            client.shop.orders.watch() as stream,
        ):
            three.stop_member(0)
            three.elect(1)
            three.insert(ORDERS, {"_id": 1})
            assert keys(stream, 1) == [1]
            three.start_member(0)
            three.clear()
            three.wait_for(lambda c: c.member == 0 and "client" in c.document)

    def test_a_partitioned_member_answers_once_it_is_healed(
        self, scripted: ScriptedSet, client: Client
    ) -> None:
        client.admin.command("ping")
        scripted.partition(0)
        with (
            pymongo.timeout(0.2),
            pytest.raises((NetworkTimeout, pymongo.errors.ExecutionTimeout)),
        ):
            client.admin.command("ping")
        scripted.heal(0)
        assert client.admin.command("ping")["ok"] == 1.0


class TestJournal:
    def test_commands_are_recorded_whole(self, scripted: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch(
            [{"$match": {"a": 1}}], batch_size=7, max_await_time_ms=3, comment="why"
        ) as stream:
            stream.try_next()
        (aggregate, *_), (more, *_) = scripted.commands("aggregate"), scripted.commands("getMore")
        assert (aggregate.database, aggregate.member) == ("shop", 0)
        assert aggregate.document["pipeline"][1] == {"$match": {"a": 1}}
        assert aggregate.change_stream == {}
        assert (more.document["batchSize"], more.document["maxTimeMS"]) == (7, 3)
        scripted.clear()
        assert scripted.commands("aggregate") == []

    def test_waiting_ends(self, scripted: ScriptedSet) -> None:
        with pytest.raises(TimeoutError):
            scripted.wait_for("ping", timeout=0.01)
