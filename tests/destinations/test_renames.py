"""Collections that are renamed into, out of and between what scopes follow."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.engine import Handler, PerBatch
from tailrace.event import ChangeEvent
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.calling import opened
from tests.handlers import OWNER, deliver

MIRRORS = ("postgresql", "mongodb", "redis")
"""The destinations that keep the last state of documents in places of their own."""
SCOPES = {name: Scope(name, "shop", name) for name in ("orders", "old")}


async def begin(handler: Handler, *scopes: str) -> None:
    if handler.position is not None:
        for scope in scopes:
            await handler.position.load(replace(OWNER, scope=scope))


async def send(handler: Handler, scope: str, event: ChangeEvent) -> None:
    if not event.is_ddl:
        await deliver(handler, event, identity=replace(OWNER, scope=scope))
        return
    assert isinstance(handler.calls, PerBatch)
    assert handler.calls.on_ddl is not None
    await handler.calls.on_ddl(event, replace(OWNER, scope=scope))


def ids(destination: Any, collection: str) -> list[Any]:
    found = destination.documents("shop", collection).values()
    return sorted(document["_id"] for document in found)


@pytest.mark.parametrize("kind", MIRRORS)
async def test_what_a_collection_from_elsewhere_replaces_is_gone_and_a_snapshot_is_asked_for(
    kind: str, made: Callable[..., Any], changes: Changes
) -> None:
    """Only the new name is followed. The event comes twice, as after a crash."""
    destination, unknown = made(kind), changes.elsewhere("unknown")
    async with opened(destination.handler, SCOPES["orders"]) as handler:
        await begin(handler, "orders")
        await send(handler, "orders", changes.insert({"_id": 1}))
        unknown.insert({"_id": 2})
        rename, later = unknown.rename("orders"), changes.insert({"_id": 3})
        with capture_logs() as log:
            await send(handler, "orders", rename)
        (warning,) = [line for line in log if line["event"] == "collection.renamed_in"]
        assert (warning["collection"], warning["to"]) == ("shop.unknown", "shop.orders")
        assert warning["help"] == "tailrace snapshot start orders --collection orders"
        assert ids(destination, "orders") == []
        await begin(handler, "orders")
        await send(handler, "orders", rename)
        await send(handler, "orders", later)
        assert ids(destination, "orders") == [3]


@pytest.mark.parametrize("first", ["orders", "old"])
@pytest.mark.parametrize("kind", MIRRORS)
async def test_each_of_two_scopes_handles_its_half_of_a_rename(
    kind: str, made: Callable[..., Any], changes: Changes, first: str
) -> None:
    """Whichever comes first: their streams are not in step."""
    destination, old = made(kind), changes.elsewhere("old")
    both = [*SCOPES.values()]
    async with (
        opened(destination.handler, *both) as one,
        opened(destination.handler, *reversed(both)) as other,
    ):
        handlers = {both[0].name: one, both[1].name: other}
        for scope, handler in handlers.items():
            await begin(handler, scope)
        await send(handlers["orders"], "orders", changes.insert({"_id": 1}))
        await send(handlers["old"], "old", old.insert({"_id": 2}))
        rename, later = changes.rename("old"), old.insert({"_id": 3})
        halves = [("orders", [rename]), ("old", [rename, later])]
        for scope, events in sorted(halves, key=lambda half: half[0] != first):
            for event in events:
                await send(handlers[scope], scope, event)
        assert (ids(destination, "orders"), ids(destination, "old")) == ([], [3])


@pytest.mark.parametrize("kind", MIRRORS)
async def test_a_rename_within_a_scope_replaces_once_also_if_it_comes_again(
    kind: str, made: Callable[..., Any], changes: Changes
) -> None:
    destination, old = made(kind), changes.elsewhere("old")
    shop = Scope("orders", "shop")
    async with opened(destination.handler, shop) as handler:
        await begin(handler, "orders")
        for event in (changes.insert({"_id": 1}), old.insert({"_id": 2})):
            await send(handler, "orders", event)
        rename = changes.rename("old")
        more = changes.elsewhere("more").rename("more2")
        for _ in range(2):
            for event in (rename, more):
                await send(handler, "orders", event)
            assert (ids(destination, "orders"), ids(destination, "old")) == ([], [1])
            await begin(handler, "orders")
