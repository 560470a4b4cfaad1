"""Documents as keys of Redis: their names, drops and renames, expiry, and the sweep."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.calling import opened, send
from tests.destinations.redis import Redis

SHOP = Scope("orders", "shop")
NAMES = ["a.b", "a b", "*", "[x]", "ä\n", "orders", "orders2", "orders:x"]


@pytest.fixture
def keys(made: Callable[..., Any]) -> Any:
    return made("redis")


async def test_expire_seconds_begins_anew_with_each_change(keys: Redis, changes: Changes) -> None:
    async with opened({**keys.handler, "expire_seconds": 1000}) as handler:
        await send(handler, changes.insert({"_id": 1}))
    with keys.server.client() as client:
        (key,) = keys.keys
        assert 990 <= client.ttl(key) <= 1000


async def test_every_name_has_keys_of_its_own_and_a_drop_deletes_only_those(
    keys: Redis, changes: Changes
) -> None:
    collections = {name: changes.elsewhere(name) for name in NAMES}
    async with opened(keys.handler, SHOP) as handler:
        for name, each in collections.items():
            await send(handler, each.insert({"_id": name}))
        assert len(keys.keys) == len(NAMES)
        for at, (name, each) in enumerate(collections.items()):
            assert keys.documents("shop", name)
            await send(handler, each.drop())
            assert len(keys.keys) == len(NAMES) - at - 1


@pytest.mark.parametrize("followed", [True, False])
async def test_a_rename_moves_the_keys_if_the_new_name_is_followed(
    keys: Redis, changes: Changes, followed: bool
) -> None:
    scope = SHOP if followed else Scope("orders", "shop", "orders")
    async with opened(keys.handler, scope) as handler:
        events = [changes.insert({"_id": n}) for n in range(3)]
        rename = changes.rename("old")
        await send(handler, *events, rename)
        await send(handler, rename)  # repeated after a crash
    assert not keys.documents("shop", "orders")
    found = keys.documents("shop", "old")
    assert [each["_id"] for each in found.values()] == ([0, 1, 2] if followed else [])


async def test_the_sweep_deletes_what_neither_a_row_nor_a_change_has_named(
    keys: Redis, changes: Changes
) -> None:
    """Also over a restart in the middle; and not at all if what was noted is lost meanwhile."""
    other = changes.elsewhere("other")
    before = [each.insert({"_id": n}) for each in (changes, other) for n in range(4)]
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, *before)
        await send(handler, barrier("snapshotBegin"), changes.read(0))
    async with opened(keys.handler, SHOP) as handler:
        await send(
            handler, changes.update(1, {"n": 1}), changes.delete(0), changes.insert({"_id": 9})
        )
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


async def test_a_rename_during_a_snapshot_names_the_new_keys(keys: Redis, changes: Changes) -> None:
    """The collection that it replaces had documents with the same keys."""
    before = [each.insert({"_id": 1}) for each in (changes, changes.elsewhere("replaced"))]
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, *before, barrier("snapshotBegin"), changes.read(1))
        changes.elsewhere("replaced").drop()  # of which a rename with dropTarget tells nothing
        await send(handler, changes.rename("replaced"), barrier("snapshotEnd", replaced="done"))
    assert ids(keys, "replaced") == [1]


@pytest.mark.parametrize(
    "more", [{"filter": '{"n": 1}'}, {"chosen": ["other"]}], ids=["filter", "chosen"]
)
async def test_a_snapshot_of_a_part_sweeps_nothing_else(
    keys: Redis, changes: Changes, more: dict[str, Any]
) -> None:
    async with opened(keys.handler, SHOP) as handler:
        await send(handler, changes.insert({"_id": 1}))
        await send(handler, barrier("snapshotBegin", **more), barrier("snapshotEnd", **more))
    assert ids(keys, "orders") == [1]


def barrier(operation: str, **message: Any) -> ChangeEvent:
    """The barrier of a snapshot of the database, which lists collections with their states."""
    more = {name: message.pop(name) for name in ("filter", "chosen") if name in message}
    listed = [{"db": "shop", "coll": name, "state": state} for name, state in message.items()]
    snapshot = {"id": "s", "filter": "", "chosen": [], "collections": listed, **more}
    identity = {"snapshot": "s", "event": operation}
    return ChangeEvent.from_document(
        {"_id": identity, "operationType": operation, "ns": {"db": "shop"}, "snapshot": snapshot}
    )


def ids(keys: Redis, collection: str) -> list[int]:
    return [each["_id"] for each in keys.documents("shop", collection).values()]
