"""The scripted server behaves to real drivers as a replica set would.

Other tests trust it, so each thing that it can be told to do is shown here once, with PyMongo,
PyMongo's asyncio API and Motor on the other side.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pymongo
import pytest
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo.errors import (
    AutoReconnect,
    ConfigurationError,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
)

from tests.scripted import (
    RESUMABLE,
    Behaviour,
    Command,
    ScriptedSet,
    ServerError,
    encoded_inserts,
    high_water_token,
    is_high_water,
    token_time,
)

Client = pymongo.MongoClient[dict[str, Any]]


def connect(uri: str, **options: Any) -> Client:
    return pymongo.MongoClient(uri, **options)


@pytest.fixture
def server() -> Iterator[ScriptedSet]:
    with ScriptedSet() as running:
        yield running


@pytest.fixture
def client(server: ScriptedSet) -> Iterator[Client]:
    with connect(server.uri, heartbeatFrequencyMS=500) as connected:
        yield connected


@pytest.fixture
def three() -> Iterator[ScriptedSet]:
    with ScriptedSet(members=3) as running:
        yield running


@pytest.fixture
def client_of_three(three: ScriptedSet) -> Iterator[Client]:
    with connect(three.uri, heartbeatFrequencyMS=500) as connected:
        yield connected


@asynccontextmanager
async def asyncio_client(driver: str, uri: str, heartbeat_ms: int = 500) -> AsyncIterator[Any]:
    if driver == "motor":
        motor: Any = AsyncIOMotorClient(uri, heartbeatFrequencyMS=heartbeat_ms)
        try:
            yield motor
        finally:
            motor.close()
    else:
        asynchronous: pymongo.AsyncMongoClient[dict[str, Any]]
        asynchronous = pymongo.AsyncMongoClient(uri, heartbeatFrequencyMS=heartbeat_ms)
        async with asynchronous:
            yield asynchronous


@asynccontextmanager
async def watching(target: Any, **options: Any) -> AsyncIterator[Any]:
    """`watch()` of Motor returns the stream, that of PyMongo a coroutine of it."""
    opened = target.watch(max_await_time_ms=200, **options)
    async with await opened if asyncio.iscoroutine(opened) else opened as stream:
        if stream.resume_token is None:
            await stream.try_next()  # Motor opens its cursor on the first read
        yield stream


def keys(stream: Any, count: int) -> list[Any]:
    return [next(stream)["documentKey"]["_id"] for _ in range(count)]


def first_command(server: ScriptedSet, name: str) -> Command:
    return server.commands(name)[0]


class TestDelivery:
    @pytest.mark.parametrize("driver", ["motor", "pymongo"])
    @pytest.mark.parametrize("scope", ["collection", "database", "cluster"])
    async def test_a_scope_gets_its_events_in_order(
        self, server: ScriptedSet, driver: str, scope: str
    ) -> None:
        expected = {
            "collection": [1, 4],
            "database": [1, 2, 4],
            "cluster": [1, 2, 3, 4],
        }[scope]
        async with asyncio_client(driver, server.uri) as client:
            target = {
                "collection": client.shop.orders,
                "database": client.shop,
                "cluster": client,
            }[scope]
            async with watching(target) as stream:
                for namespace, key in (
                    ("shop.orders", 1),
                    ("shop.items", 2),
                    ("other.orders", 3),
                    ("shop.orders", 4),
                ):
                    server.insert(namespace, {"_id": key})
                seen = [(await stream.next())["documentKey"]["_id"] for _ in expected]
        assert seen == expected

    async def test_a_getmore_that_waits_is_woken_by_an_append(self, server: ScriptedSet) -> None:
        async with (
            asyncio_client("pymongo", server.uri) as client,
            await client.shop.orders.watch(max_await_time_ms=60_000) as stream,
        ):
            reading = asyncio.create_task(stream.next())
            await server.until("getMore")
            server.insert("shop.orders", {"_id": 1})
            async with asyncio.timeout(5):
                assert (await reading)["documentKey"] == {"_id": 1}

    def test_batch_sizes_are_kept(self, server: ScriptedSet, client: Client) -> None:
        start = server.cluster_time
        server.insert_many("shop.orders", range(7))
        reply = client.shop.command(
            "aggregate",
            "orders",
            pipeline=[{"$changeStream": {"startAtOperationTime": start}}],
            cursor={"batchSize": 2},
        )
        assert [e["documentKey"]["_id"] for e in reply["cursor"]["firstBatch"]] == [0, 1]
        assert reply["cursor"]["ns"] == "shop.orders"

    def test_a_reply_holds_no_more_bytes_than_it_may_but_at_least_one_event(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.behave(reply_bytes=1_000_000)
        big = {"payload": "x" * 600_000}
        with client.shop.orders.watch() as stream:
            server.extend(
                [
                    {"operationType": "insert", "documentKey": {"_id": n}, "fullDocument": big}
                    for n in range(3)
                ]
            )
            assert keys(stream, 3) == [0, 1, 2]
        assert len(server.commands("getMore")) == 3

    def test_replies_far_beyond_16_mb_are_possible(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.behave(reply_bytes=45_000_000)
        with client.shop.orders.watch() as stream:
            raw = encoded_inserts("shop.orders", 20, 1_000_000, server.cluster_time)
            server.append_raw(raw, namespace="shop.orders")
            assert keys(stream, 20) == list(range(20))
        assert len(server.commands("getMore")) == 1

    def test_events_go_out_as_they_were_written(self, server: ScriptedSet, client: Client) -> None:
        time = Timestamp(server.cluster_time.time + 5, 3)
        with client.shop.orders.watch() as stream:
            token = server.append(
                {"operationType": "fly", "clusterTime": time, "wings": 2}, namespace="shop.orders"
            )
            assert next(stream) == {
                "_id": token,
                "operationType": "fly",
                "clusterTime": time,
                "wings": 2,
            }
        assert token_time(token) == time == server.cluster_time

    def test_a_token_may_be_projected_away(self, server: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch() as stream:
            server.append({"operationType": "insert"}, namespace="shop.orders", omit=["_id"])
            with pytest.raises(pymongo.errors.InvalidOperation, match="resume token is missing"):
                next(stream)

    def test_fragments_have_a_token_each_and_one_cluster_time(
        self, server: ScriptedSet, client: Client
    ) -> None:
        parts: list[dict[str, Any]] = [
            {"operationType": "update"},
            {"updateDescription": {}},
            {"fullDocument": {}},
        ]
        with client.shop.orders.watch() as stream:
            tokens = server.append_fragments(parts, namespace="shop.orders")
            seen = [next(stream) for _ in parts]
        assert [e["splitEvent"] for e in seen] == [{"fragment": n, "of": 3} for n in (1, 2, 3)]
        assert [e["_id"] for e in seen] == tokens
        assert len({token_time(token) for token in tokens}) == 1
        assert ["clusterTime" in e for e in seen] == [True, False, False]


class TestTokens:
    def test_tokens_sort_in_the_order_of_the_oplog(self, server: ScriptedSet) -> None:
        time = Timestamp(server.cluster_time.time + 1, 1)
        tokens = [server.insert("shop.orders"), server.insert("a.b")]
        same_time = {"operationType": "insert", "clusterTime": time}
        tokens += server.extend([same_time] * 300)
        server.noop()
        tokens += [server.delete("shop.orders", 1), server.invalidate()]
        data = [token["_data"] for token in tokens]
        assert data == sorted(set(data))

    def test_a_stream_resumes_behind_a_token(self, server: ScriptedSet, client: Client) -> None:
        tokens = server.insert_many("shop.orders", [1, 2, 3])
        with client.shop.orders.watch(resume_after=tokens[0]) as stream:
            assert keys(stream, 2) == [2, 3]
        with client.shop.orders.watch(start_after=tokens[1]) as stream:
            assert keys(stream, 1) == [3]

    def test_an_operation_time_is_inclusive(self, server: ScriptedSet, client: Client) -> None:
        server.insert("shop.orders", {"_id": 1})
        server.insert("shop.orders", {"_id": 2})
        with client.shop.orders.watch(start_at_operation_time=server.cluster_time) as stream:
            assert keys(stream, 1) == [2]

    def test_idle_tokens_advance_with_time_and_can_be_resumed(
        self, server: ScriptedSet, client: Client
    ) -> None:
        with client.shop.orders.watch(max_await_time_ms=1) as stream:
            first = stream.resume_token
            assert first is not None
            now = server.noop(seconds=10)
            assert stream.try_next() is None
            later = stream.resume_token
        assert later is not None
        assert is_high_water(later)
        assert token_time(later) == now
        assert later["_data"] > first["_data"]
        server.insert("shop.orders", {"_id": 1})
        with client.shop.orders.watch(resume_after=later) as stream:
            assert keys(stream, 1) == [1]

    def test_post_batch_tokens_can_be_switched_off(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.behave(post_batch_tokens=False)
        with client.shop.orders.watch(max_await_time_ms=1) as stream:
            assert stream.try_next() is None
            assert stream.resume_token is None

    def test_noops_can_come_by_themselves(self) -> None:
        with (
            ScriptedSet(noop_seconds=0.01) as server,
            connect(server.uri) as client,
            client.shop.orders.watch(max_await_time_ms=50) as stream,
        ):
            stream.try_next()
            first = stream.resume_token
            stream.try_next()
            assert first is not None
            assert stream.resume_token is not None
            assert stream.resume_token["_data"] > first["_data"]

    def test_time_never_goes_backwards(self, server: ScriptedSet) -> None:
        with pytest.raises(ValueError, match="start_seconds"):
            server.append({"operationType": "insert", "clusterTime": Timestamp(1, 1)})

    def test_an_unknown_token_is_fatal(self, server: ScriptedSet, client: Client) -> None:
        strange = {"_data": "82FFFFFFF0000000012B042C0100296E5A1004"}
        with pytest.raises(OperationFailure) as caught:
            client.shop.orders.watch(resume_after=strange)
        assert caught.value.code == 280

    @pytest.mark.parametrize("command", ["aggregate", "getMore"])
    def test_lost_history_shows_on_the_aggregate_or_on_the_first_getmore(
        self, server: ScriptedSet, client: Client, command: str
    ) -> None:
        server.behave(history_lost_on="reading" if command == "aggregate" else command)
        old = server.insert("shop.orders")
        server.truncate_oplog()
        with (
            pytest.raises(OperationFailure) as caught,
            client.shop.orders.watch(resume_after=old) as stream,
        ):
            next(stream)
        assert caught.value.code == 286
        assert bool(server.commands("getMore")) == (command == "getMore")

    def test_a_cursor_that_the_oplog_has_overtaken_fails(
        self, server: ScriptedSet, client: Client
    ) -> None:
        with client.shop.orders.watch() as stream:
            server.insert("shop.orders")
            server.truncate_oplog()
            with pytest.raises(OperationFailure) as caught:
                next(stream)
        assert caught.value.code == 286


class TestAggregateWithoutEvents:
    """`cursor: {batchSize: 0}`: nothing is read before the first getMore (seen on mongod 6.0.5)."""

    @staticmethod
    def open(client: Client, stage: Mapping[str, Any], **fields: Any) -> Mapping[str, Any]:
        return client.shop.command(
            "aggregate",
            "orders",
            pipeline=[{"$changeStream": stage}],
            cursor={"batchSize": 0},
            **fields,
        )

    @staticmethod
    def read(client: Client, opened: Mapping[str, Any]) -> Mapping[str, Any]:
        return client.shop.command("getMore", opened["cursor"]["id"], collection="orders")

    @pytest.mark.parametrize("option", ["resumeAfter", "startAfter", "startAtOperationTime", ""])
    def test_its_position_is_that_of_the_start(
        self, server: ScriptedSet, client: Client, option: str
    ) -> None:
        first, *_ = server.insert_many("shop.orders", [1, 2, 3])
        time = server.cluster_time
        start = first if option != "startAtOperationTime" else time
        now = Timestamp(time.time, time.inc + 1)
        expected = {
            "resumeAfter": first,
            "startAfter": first,
            "startAtOperationTime": high_water_token(time),
            "": high_water_token(now),
        }[option]
        opened = self.open(client, {option: start} if option else {})
        assert opened["cursor"]["firstBatch"] == []
        assert opened["cursor"]["postBatchResumeToken"] == expected
        found = {"startAtOperationTime": [3], "": [4]}.get(option, [2, 3])
        if not option:
            server.insert("shop.orders", {"_id": 4})
        batch = self.read(client, opened)["cursor"]["nextBatch"]
        assert [event["documentKey"]["_id"] for event in batch] == found

    def test_an_invalidate_behind_it_comes_with_the_first_read(
        self, server: ScriptedSet, client: Client
    ) -> None:
        dropped = server.drop("shop.orders")
        opened = self.open(client, {"resumeAfter": dropped})
        assert opened["cursor"]["id"] != 0
        reply = self.read(client, opened)
        assert [e["operationType"] for e in reply["cursor"]["nextBatch"]] == ["invalidate"]
        assert reply["cursor"]["id"] == 0

    @pytest.mark.parametrize("code", [280, 286])
    def test_what_is_wrong_with_the_start_shows_on_the_first_read(
        self, server: ScriptedSet, client: Client, code: int
    ) -> None:
        token: Mapping[str, Any] = {"_data": "82FFFFFFF0000000012B042C0100296E5A1004"}
        if code == 286:
            token = server.insert("shop.orders")
            server.truncate_oplog()
        opened = self.open(client, {"resumeAfter": token})
        assert opened["cursor"]["postBatchResumeToken"] == token
        with pytest.raises(OperationFailure) as caught:
            self.read(client, opened)
        assert caught.value.code == code

    def test_an_invalidate_s_token_is_refused_at_once(
        self, server: ScriptedSet, client: Client
    ) -> None:
        with client.shop.orders.watch() as stream:
            server.drop("shop.orders")
            invalidate = list(stream)[-1]["_id"]
        with pytest.raises(OperationFailure) as caught:
            self.open(client, {"resumeAfter": invalidate})
        assert caught.value.code == 260
        opened = self.open(client, {"startAfter": invalidate})
        assert opened["cursor"]["postBatchResumeToken"] == invalidate

    @pytest.mark.parametrize("limit", ["the server's default", "the command's own"])
    def test_it_searches_in_get_more_where_no_time_limit_cuts_it(
        self, server: ScriptedSet, client: Client, limit: str
    ) -> None:
        own = {"maxTimeMS": 50} if limit == "the command's own" else {}
        server.behave(scan_seconds=0.2, default_max_time_ms=0 if own else 50)
        start = {"startAtOperationTime": server.cluster_time}
        server.insert("shop.orders", {"_id": 1})
        pipeline = [{"$changeStream": start}]
        with pytest.raises(OperationFailure) as caught:
            client.shop.command("aggregate", "orders", pipeline=pipeline, cursor={}, **own)
        assert caught.value.code == 50
        opened = self.open(client, start, **own)
        more = {"collection": "orders", "maxTimeMS": 1}
        reply = client.shop.command("getMore", opened["cursor"]["id"], **more)
        assert len(reply["cursor"]["nextBatch"]) == 1

    def test_the_read_that_searches_is_a_current_operation(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.behave(scan_seconds=60)
        opened = self.open(client, {"startAtOperationTime": server.cluster_time})
        cursor = opened["cursor"]["id"]

        def running(asked: int) -> list[Mapping[str, Any]]:
            stages = [{"$currentOp": {}}, {"$match": {"command.getMore": asked}}]
            return list(client.admin.aggregate(stages))

        assert running(cursor) == []
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(self.read, client, opened)
            server.wait_for("getMore")
            (found,) = running(cursor)
            assert found["command"]["getMore"] == cursor
            assert running(cursor + 1) == []
            server.cut_connections(0)
            assert isinstance(reading.exception(5), AutoReconnect)


class TestInvalidate:
    @pytest.mark.parametrize("operation", ["drop", "rename", "dropDatabase"])
    def test_a_collection_stream_ends(
        self, server: ScriptedSet, client: Client, operation: str
    ) -> None:
        server.insert("shop.orders")
        with client.shop.orders.watch() as stream, client.watch() as cluster:
            if operation == "drop":
                server.drop("shop.orders")
            elif operation == "rename":
                server.rename("shop.orders", "shop.archive")
            else:
                server.drop_database("shop")
            seen = [event["operationType"] for event in stream]
            assert seen == ["rename" if operation == "rename" else "drop", "invalidate"]
            assert not stream.alive
            assert next(cluster)["operationType"] == seen[0]
            assert cluster.alive

    def test_a_database_stream_ends_with_its_database(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.insert("shop.orders")
        with client.shop.watch() as stream:
            server.drop("shop.items")
            server.drop_database("shop")
            seen = [event["operationType"] for event in stream]
        assert seen == ["drop", "drop", "dropDatabase", "invalidate"]

    def test_its_token_is_for_start_after_only(self, server: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch() as stream:
            dropped = server.drop("shop.orders")
            invalidate = list(stream)[-1]["_id"]
        server.insert("shop.orders", {"_id": 1})
        with pytest.raises(OperationFailure) as caught:
            client.shop.orders.watch(resume_after=invalidate)
        assert caught.value.code == 260
        with client.shop.orders.watch(start_after=invalidate) as stream:
            assert keys(stream, 1) == [1]
        with client.shop.orders.watch(resume_after=dropped) as stream:
            assert [event["operationType"] for event in stream] == ["invalidate"]


class TestFaults:
    @pytest.mark.parametrize(
        "fault",
        [
            {"code": 11602, "labels": [RESUMABLE]},
            {"code": 43},
            {"close_connection": True},
            {"delay_seconds": 0.01},
        ],
        ids=["labelled", "cursor not found", "cut", "slow"],
    )
    @pytest.mark.parametrize("driver", ["motor", "pymongo"])
    async def test_a_stream_goes_on_behind_a_fault(
        self, server: ScriptedSet, driver: str, fault: dict[str, Any]
    ) -> None:
        async with (
            asyncio_client(driver, server.uri) as client,
            watching(client.shop.orders) as stream,
        ):
            armed = server.fail("getMore", **fault)
            server.insert_many("shop.orders", [1, 2])
            seen = [(await stream.next())["documentKey"]["_id"] for _ in range(2)]
        assert seen == [1, 2]
        assert armed.hits == 1

    def test_faults_skip_count_and_end(self, server: ScriptedSet, client: Client) -> None:
        server.fail("ping", skip=1, times=2, code=2, message="as scripted")
        outcomes = []
        for _ in range(4):
            try:
                outcomes.append(client.admin.command("ping")["ok"])
            except OperationFailure as error:
                outcomes.append(error.code)
        assert outcomes == [1.0, 2, 2, 1.0]

    def test_a_fault_without_a_count_lasts_until_cleared(
        self, server: ScriptedSet, client: Client
    ) -> None:
        server.fail("ping", times=None, code=2, where=lambda c: c.database == "shop")
        for _ in range(3):
            with pytest.raises(OperationFailure):
                client.shop.command("ping")
        assert client.admin.command("ping")["ok"] == 1.0
        server.clear_faults()
        assert client.shop.command("ping")["ok"] == 1.0

    def test_a_silent_server_lets_the_client_run_into_its_own_timeout(
        self, server: ScriptedSet
    ) -> None:
        server.fail("ping", silent=True)
        with (
            connect(server.uri, socketTimeoutMS=150) as client,
            pytest.raises(NetworkTimeout),
        ):
            client.admin.command("ping")

    def test_killed_cursors_are_not_found(self, server: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch() as stream:
            assert server.kill_cursors() == 1
            server.insert("shop.orders", {"_id": 1})
            assert keys(stream, 1) == [1]
        assert len(server.commands("aggregate")) == 2
        assert server.open_cursors == 0

    def test_a_hook_answers_in_place_of_the_server(
        self, server: ScriptedSet, client: Client
    ) -> None:
        def hook(command: Command) -> Mapping[str, Any] | None:
            if command.name == "ping":
                raise ServerError(13, "not for you")
            return {"answer": 42} if command.name == "ask" else None

        remove = server.on_command(hook)
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
            with ScriptedSet() as server, connect(server.uri) as client:
                server.on_command(hook)
                with pytest.raises(AutoReconnect):
                    client.admin.command("ping")

        with pytest.raises(ExceptionGroup, match="a hook failed"):
            ping_with_bug()

    def test_unknown_commands_are_not_found(self, client: Client) -> None:
        with pytest.raises(OperationFailure) as caught:
            client.admin.command("getCmdLineOpts")
        assert caught.value.code == 59


class TestMembers:
    def test_an_election_moves_the_stream(
        self, three: ScriptedSet, client_of_three: Client
    ) -> None:
        with client_of_three.shop.orders.watch() as stream:
            three.insert("shop.orders", {"_id": 1})
            assert keys(stream, 1) == [1]
            three.step_down(successor=2, interrupt=10107)
            three.insert("shop.orders", {"_id": 2})
            assert keys(stream, 1) == [2]
        assert [c.member for c in three.commands("aggregate")] == [0, 2]

    @pytest.mark.parametrize(
        ("streaming", "heartbeat_ms"), [(True, 10_000), (False, 500)], ids=["told", "polling"]
    )
    async def test_clients_notice_an_election(
        self, three: ScriptedSet, streaming: bool, heartbeat_ms: int
    ) -> None:
        three.behave(streaming_hello=streaming)
        three.step_down()
        async with asyncio_client("pymongo", three.uri, heartbeat_ms) as client:
            ping = asyncio.create_task(client.admin.command("ping"))
            if streaming:
                await three.until(lambda c: "topologyVersion" in c.document, count=3)
            else:
                await three.until("ismaster", count=3)
            three.elect(1)
            async with asyncio.timeout(5):
                await ping
        assert first_command(three, "ping").member == 1

    def test_no_primary_until_one_is_elected(self, three: ScriptedSet) -> None:
        three.step_down()
        with (
            connect(three.uri, serverSelectionTimeoutMS=100) as client,
            pytest.raises(pymongo.errors.ServerSelectionTimeoutError),
        ):
            client.admin.command("ping")

    def test_a_stale_primary_refuses_an_aggregate(self, three: ScriptedSet) -> None:
        address = three.hosts[1]
        with connect(f"mongodb://{address}/?directConnection=true") as client:
            assert client.admin.command("hello")["secondary"]
            three.on_command(_without_read_preference)
            with pytest.raises(NotPrimaryError):
                client.shop.command("aggregate", 1, pipeline=[{"$changeStream": {}}], cursor={})

    def test_a_secondary_stream_stays_with_its_member(
        self, three: ScriptedSet, client_of_three: Client
    ) -> None:
        orders = client_of_three.shop.get_collection(
            "orders", read_preference=pymongo.ReadPreference.SECONDARY
        )
        with orders.watch(max_await_time_ms=10) as stream:
            for _ in range(5):
                stream.try_next()
        owner = first_command(three, "aggregate").member
        assert owner in (1, 2)
        assert {c.member for c in three.commands("getMore")} == {owner}
        assert {c.member for c in three.commands("killCursors")} == {owner}

    def test_a_cursor_of_another_member_is_not_found(
        self, three: ScriptedSet, client_of_three: Client
    ) -> None:
        opened = client_of_three.shop.command(
            "aggregate", 1, pipeline=[{"$changeStream": {}}], cursor={}
        )
        more = {"getMore": opened["cursor"]["id"], "collection": "$cmd.aggregate"}
        elsewhere = pymongo.ReadPreference.SECONDARY
        with pytest.raises(pymongo.errors.CursorNotFound):
            client_of_three.shop.command(more, read_preference=elsewhere)

    def test_a_member_stops_and_comes_back(self, three: ScriptedSet) -> None:
        # PyMongo waits this long for the cursor's own member to return before it resumes.
        patience: Any = {"serverSelectionTimeoutMS": 500, "heartbeatFrequencyMS": 500}
        with (
            connect(three.uri, **patience) as client,
            client.shop.orders.watch() as stream,
        ):
            three.stop_member(0)
            three.elect(1)
            three.insert("shop.orders", {"_id": 1})
            assert keys(stream, 1) == [1]
            three.start_member(0)
            three.clear()
            three.wait_for(lambda c: c.member == 0 and "client" in c.document)

    def test_a_partitioned_member_answers_once_it_is_healed(
        self, server: ScriptedSet, client: Client
    ) -> None:
        client.admin.command("ping")
        server.partition(0)
        with (
            pymongo.timeout(0.2),
            pytest.raises((NetworkTimeout, pymongo.errors.ExecutionTimeout)),
        ):
            client.admin.command("ping")
        server.heal(0)
        assert client.admin.command("ping")["ok"] == 1.0


class TestPoses:
    def test_a_replica_set_tells_its_identity(self, server: ScriptedSet, client: Client) -> None:
        config = client.admin.command("replSetGetConfig")["config"]
        assert config["settings"]["replicaSetId"] == server.replica_set_id
        assert config["_id"] == "scripted"

    def test_a_mongos_streams(self) -> None:
        with ScriptedSet(kind="mongos") as server, connect(server.uri) as client:
            assert client.is_mongos
            with client.shop.orders.watch() as stream:
                server.insert("shop.orders", {"_id": 1})
                assert keys(stream, 1) == [1]

    def test_a_standalone_server_has_no_change_streams(self) -> None:
        with ScriptedSet(kind="standalone") as server, connect(server.uri) as client:
            with pytest.raises(OperationFailure) as caught:
                client.shop.orders.watch()
            assert caught.value.code == 40573

    def test_pymongo_refuses_monitors_below_wire_version_9(self) -> None:
        with (
            ScriptedSet(behaviour=Behaviour(max_wire_version=8)) as server,
            connect(server.uri) as client,
            pytest.raises(ConfigurationError, match="requires at least 9"),
        ):
            client.admin.command("ping")

    @pytest.mark.parametrize("version", [6, 7, 8])
    def test_application_connections_may_see_an_older_world(self, version: int) -> None:
        older = Behaviour(max_wire_version=version, monitor_wire_version=9)
        with (
            ScriptedSet(behaviour=older) as server,
            connect(server.uri, compressors="zlib") as client,
        ):
            assert client.admin.command("hello")["maxWireVersion"] == version


class TestRecord:
    def test_commands_are_recorded_whole(self, server: ScriptedSet, client: Client) -> None:
        with client.shop.orders.watch(
            [{"$match": {"a": 1}}], batch_size=7, max_await_time_ms=3, comment="why"
        ) as stream:
            stream.try_next()
        aggregate, more = first_command(server, "aggregate"), first_command(server, "getMore")
        assert (aggregate.database, aggregate.member) == ("shop", 0)
        assert aggregate.document["pipeline"][1] == {"$match": {"a": 1}}
        assert aggregate.change_stream == {}
        assert (more.document["batchSize"], more.document["maxTimeMS"]) == (7, 3)
        assert more.document["comment"] == "why"
        assert more.at >= aggregate.at
        server.clear()
        assert server.commands("aggregate") == []

    async def test_waiting_for_a_command_does_not_block_the_loop(self, server: ScriptedSet) -> None:
        async with asyncio_client("pymongo", server.uri) as client, asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(server.until("ping", count=2))
            await client.admin.command("ping")
            await client.admin.command("ping")
            assert [c.name for c in await waiting] == ["ping", "ping"]

    def test_waiting_ends(self, server: ScriptedSet) -> None:
        with pytest.raises(TimeoutError):
            server.wait_for("ping", timeout=0.01)

    async def test_raw_replies_are_what_was_written(self, server: ScriptedSet) -> None:
        raw = encoded_inserts("shop.orders", 3, 600, server.cluster_time)
        options: Any = {"document_class": RawBSONDocument}
        async with (
            pymongo.AsyncMongoClient(server.uri, **options) as client,
            await client.shop.orders.watch(max_await_time_ms=100) as stream,
        ):
            server.append_raw(raw, namespace="shop.orders")
            seen = [(await stream.next()).raw for _ in raw]
        assert seen == raw


def _without_read_preference(command: Command) -> None:
    """Make the command look like that of a client which still believes in the old primary."""
    if isinstance(command.document, dict):
        command.document.pop("$readPreference", None)
