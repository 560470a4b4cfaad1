"""What is special about Redis: its errors, its connections, trimming, expiry, and the sweep."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tailrace.engine import Handler
from tailrace.errors import ConfigurationError, Fenced, Unavailable
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.calling import attempted, opened, send
from tests.destinations.destination import Make
from tests.destinations.redis import Redis, RedisServer
from tests.handlers import OWNER, deliver

SHOP = Scope("orders", "shop")
LATER = replace(OWNER, epoch=OWNER.epoch + 1)
NAMES = ["a.b", "a b", "*", "[x]", "ä\n", "orders", "orders2", "orders:x"]


@pytest.fixture
def keys(served: Callable[[str], Make], database: str) -> Iterator[Redis]:
    yield from _made(served, database)


@pytest.fixture
def stream(served: Callable[[str], Make], database: str) -> Iterator[Redis]:
    yield from _made(served, database, log=True)


@pytest.fixture(params=[True, False], ids=["stream", "key"])
def either(
    served: Callable[[str], Make], database: str, request: pytest.FixtureRequest
) -> Iterator[Redis]:
    yield from _made(served, database, log=request.param)


def _made(served: Callable[[str], Make], name: str, *, log: bool = False) -> Iterator[Redis]:
    made = served("redis")(name, log=log)
    assert isinstance(made, Redis)
    yield made
    made.start()


@pytest.fixture
def shop() -> Changes:
    return Changes()


async def test_a_stream_has_the_parts_of_each_message_as_fields(
    stream: Redis, shop: Changes
) -> None:
    events = shop.insert({"_id": 1, "n": 1}), shop.delete(1), shop.drop()
    async with opened({**stream.handler, "envelope": "document"}) as handler:
        await send(handler, *events)
    assert stream.entries("shop.orders") == [
        {
            "id": event.id["_data"],
            "operation": event.operation_type,
            "namespace": "shop.orders",
            "key": '{"_id":{"$numberInt":"1"}}',
            **value,
        }
        for event, value in zip(events[:2], [{"value": '{"_id":1,"n":1}'}, {}], strict=True)
    ]  # a drop has no form in this envelope


async def test_max_length_trims_a_stream(stream: Redis, shop: Changes) -> None:
    async with opened({**stream.handler, "max_length": 100}) as handler:
        await deliver(handler, *[shop.insert({"_id": n}) for n in range(1000)])
    entries = stream.entries("shop.orders")
    assert 100 <= len(entries) < 300  # whole nodes of the stream are removed
    assert entries[-1]["key"] == '{"_id":{"$numberInt":"999"}}'


async def test_expire_seconds_begins_anew_with_each_change(keys: Redis, shop: Changes) -> None:
    async with opened({**keys.handler, "expire_seconds": 1000}) as handler:
        await send(handler, shop.insert({"_id": 1}))
    with keys.server.client() as client:
        (key,) = keys.keys
        assert 990 <= client.ttl(key) <= 1000


async def test_every_name_has_keys_of_its_own_and_a_drop_deletes_only_those(
    keys: Redis, shop: Changes
) -> None:
    collections = {name: shop.elsewhere(name) for name in NAMES}
    async with opened(keys.handler, SHOP) as handler:
        for name, changes in collections.items():
            await send(handler, changes.insert({"_id": name}))
        assert len(keys.keys) == len(NAMES)
        for at, (name, changes) in enumerate(collections.items()):
            assert keys.documents("shop", name)
            await send(handler, changes.drop())
            assert len(keys.keys) == len(NAMES) - at - 1


@pytest.mark.parametrize("followed", [True, False])
async def test_a_rename_moves_the_keys_if_the_new_name_is_followed(
    keys: Redis, shop: Changes, followed: bool
) -> None:
    scope = SHOP if followed else Scope("orders", "shop", "orders")
    async with opened(keys.handler, scope) as handler:
        events = [shop.insert({"_id": n}) for n in range(3)]
        rename = shop.rename("old")
        await send(handler, *events, rename)
        await send(handler, rename)  # repeated after a crash
    assert not keys.documents("shop", "orders")
    found = keys.documents("shop", "old")
    assert [each["_id"] for each in found.values()] == ([0, 1, 2] if followed else [])


async def test_the_sweep_deletes_what_neither_a_row_nor_a_change_has_named(
    keys: Redis, shop: Changes
) -> None:
    """Also over a restart in the middle; and not at all if what was noted is lost meanwhile."""
    other = shop.elsewhere("other")
    before = [each.insert({"_id": n}) for each in (shop, other) for n in range(4)]
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, *before)
        await send(handler, barrier("snapshotBegin"), shop.read(0))
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, shop.update(1, {"n": 1}), shop.delete(0), shop.insert({"_id": 9}))
        await send(handler, barrier("snapshotEnd", orders="done", other="refused"))
        assert ids(keys, "orders") == [1, 9]
        assert ids(keys, "other") == [0, 1, 2, 3]
        await send(handler, barrier("snapshotBegin"), barrier("snapshotEnd", orders="done"))
        assert not keys.keys  # a collection that is not listed is gone
        await send(handler, *before, barrier("snapshotBegin"))
        with keys.server.client() as client:
            client.delete(f"tailrace:unnamed:it:orders:{keys.handler['key']}")
        with capture_logs() as logs:
            await send(handler, barrier("snapshotEnd", orders="done"))
    assert len(keys.keys) == 8
    assert [each["event"] for each in logs] == ["redis.sweep_skipped"]


async def test_a_rename_during_a_snapshot_names_the_new_keys(keys: Redis, shop: Changes) -> None:
    """The collection that it replaces had documents with the same keys."""
    before = [each.insert({"_id": 1}) for each in (shop, shop.elsewhere("replaced"))]
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, *before, barrier("snapshotBegin"), shop.read(1))
        shop.elsewhere("replaced").drop()  # of which a rename with dropTarget tells nothing
        await send(handler, shop.rename("replaced"), barrier("snapshotEnd", replaced="done"))
    assert ids(keys, "replaced") == [1]


@pytest.mark.parametrize(
    "more", [{"filter": '{"n": 1}'}, {"chosen": ["other"]}], ids=["filter", "chosen"]
)
async def test_a_snapshot_of_a_part_sweeps_nothing_else(
    keys: Redis, shop: Changes, more: dict[str, Any]
) -> None:
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, shop.insert({"_id": 1}))
        await send(handler, barrier("snapshotBegin", **more), barrier("snapshotEnd", **more))
    assert ids(keys, "orders") == [1]


def barrier(operation: str, **told: Any) -> ChangeEvent:
    """The barrier of a snapshot of the database, which lists collections with their states."""
    more = {name: told.pop(name) for name in ("filter", "chosen") if name in told}
    listed = [{"db": "shop", "coll": name, "state": state} for name, state in told.items()]
    snapshot = {"id": "s", "filter": "", "chosen": [], "collections": listed, **more}
    identity = {"snapshot": "s", "event": operation}
    return ChangeEvent.from_document(
        {"_id": identity, "operationType": operation, "ns": {"db": "shop"}, "snapshot": snapshot}
    )


def ids(keys: Redis, collection: str) -> list[int]:
    return [each["_id"] for each in keys.documents("shop", collection).values()]


async def test_a_full_server_is_waited_for_and_nothing_of_the_batch_is_stored(
    either: Redis, shop: Changes
) -> None:
    events = [shop.insert({"_id": n}) for n in range(100)]
    with either.server.client() as client:
        client.config_set("maxmemory", "1mb")
        try:
            async with opened(either.handler) as handler:
                with pytest.raises(Unavailable, match="OutOfMemoryError"):
                    await deliver(handler, *events)
                assert not either.keys
                client.config_set("maxmemory", 0)
                await deliver(handler, *events)
        finally:
            client.config_set("maxmemory", 0)
    assert len(either.documents("shop", "orders")) == 100


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (("replica-read-only yes", "replicaof 127.0.0.1 1"), "ReadOnlyError"),
        (("min-replicas-to-write 1",), "NOREPLICAS"),
    ],
)
async def test_a_server_that_takes_no_writes_now_is_waited_for(
    tmp_path: Path, shop: Changes, option: tuple[str, ...], told: str
) -> None:
    options = [word for each in option for word in f"--{each}".split()]
    server = RedisServer(tmp_path, *options)
    try:
        async with opened(Redis(server, "x").handler) as handler:
            with pytest.raises(Unavailable, match=told):
                await deliver(handler, shop.insert({"_id": 1}))
    finally:
        server.stop()


async def test_a_stream_whose_key_has_another_type_is_told_and_waited_for(
    stream: Redis, shop: Changes
) -> None:
    key = f"{stream.name}/shop.orders"
    with stream.server.client() as client:
        client.set(key, "text")
        async with opened(stream.handler) as handler:
            event = shop.insert({"_id": 1})
            with pytest.raises(Unavailable, match=f"'{key}' is not a stream: delete it, or choose"):
                await deliver(handler, event)
            client.delete(key)
            await deliver(handler, event)
    assert len(stream.entries("shop.orders")) == 1


async def test_answer_seconds_and_a_cancelled_call_close_the_connection(
    stream: Redis, shop: Changes
) -> None:
    """Later answers are never taken for those of an earlier call."""
    async with opened({**stream.handler, "answer_seconds": 0.3}) as handler:
        await deliver(handler, shop.insert({"_id": 0}))
        stream.pause()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await deliver(handler, shop.insert({"_id": 1}))
        with anyio.move_on_after(0.1) as cancelled:
            await deliver(handler, shop.insert({"_id": 2}))
        assert cancelled.cancelled_caught
        stream.start()
        for n in range(3, 50):
            await deliver(handler, shop.insert({"_id": n}))
    entries = stream.entries("shop.orders")
    numbers = [json.loads(each["value"])["fullDocument"]["_id"] for each in entries]
    assert [n for n in numbers if n not in (1, 2)] == [0, *range(3, 50)]


async def test_a_password_that_changes_is_read_again_and_missing_rights_are_told(
    tmp_path: Path, shop: Changes
) -> None:
    server = RedisServer(tmp_path)
    file = tmp_path / "url"

    def let(password: str, rights: str = "+@all") -> None:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "reset", "on", f">{password}", "~*")
            client.execute_command("ACL", "SETUSER", "app", *rights.split())
            client.execute_command("CLIENT", "KILL", "USER", "app")

    def write(password: str) -> None:
        file.write_text(f"redis://app:{password}@127.0.0.1:{server.port}/0\n")

    try:
        let("old-password")
        write("old-password")
        async with opened({**Redis(server, "x").handler, "url": {"file": str(file)}}) as handler:
            await deliver(handler, shop.insert({"_id": 1}))
            let("new-password")
            event = shop.insert({"_id": 2})
            await _lost(handler, event)
            with pytest.raises(Unavailable, match=r"refuses the login .* handlers\.it\.url"):
                await deliver(handler, event)
            write("new-password")
            await deliver(handler, event)
            let("new-password", "+@all -set -exec")
            await _lost(handler, event)
            with pytest.raises(Unavailable, match=r"or a command: correct handlers\.it\.url"):
                await deliver(handler, event)
    finally:
        server.stop()


async def _lost(handler: Handler, event: ChangeEvent) -> None:
    with pytest.raises(Unavailable, match="ConnectionError"):
        await deliver(handler, event)


async def test_a_process_that_was_replaced_writes_nothing_more(
    either: Redis, shop: Changes
) -> None:
    """Not even the batch that it was sending when it was suspended."""
    first, second, third = shop.insert({"_id": 1}), shop.update(1, {"n": 2}), shop.drop()
    async with opened(either.handler) as former, opened(either.handler) as later:
        await deliver(former, first)
        await deliver(later, first, second, identity=LATER)
        with pytest.raises(Fenced, match="a later epoch"):
            await deliver(former, first)
        with pytest.raises(Fenced, match="a later epoch"):
            await send(former, third)
    assert [each["n"] for each in either.documents("shop", "orders").values()] == [2]


async def test_a_trial_leaves_nothing_and_tells_what_a_start_would(either: Redis) -> None:
    told = "keys" if either.sent() is None else f"streams {either.name}/shop.orders"
    with either.server.client() as client:
        former = client.dbsize()
        assert told in await attempted(either.handler)
        assert client.dbsize() == former


async def test_a_server_of_a_cluster_refuses_the_start(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, "--cluster-enabled", "yes")
    try:
        with pytest.raises(ConfigurationError, match=r"handlers\.it\.url: Redis Cluster is not"):
            async with opened(Redis(server, "x").handler):
                pass
    finally:
        server.stop()
