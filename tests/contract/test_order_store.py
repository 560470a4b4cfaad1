"""What every store keeps of operators' orders, and of where scopes were before."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from bson.timestamp import Timestamp

from tailrace.engine.ports import OrderStore
from tailrace.model.order import Order
from tailrace.model.snapshot import SnapshotRequest
from tailrace.model.subscription import Subscription
from tailrace.stores.former_positions import MOST_POSITIONS, RECENT
from tests.contract.stores import NOW, Backing, checkpoint

FIRST = Order("orders", 1, paused=True, by="ann on laptop at ::1", at=NOW)


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[OrderStore]:
    async with backing.open() as opened:
        yield opened.orders


async def test_an_order_comes_back_with_every_field(backing: Backing) -> None:
    position = checkpoint(cluster_time=Timestamp(1_700_000_009, 1)).position
    second = replace(FIRST, number=2, seek=position, sought=2, fingerprint="c0ffee")
    second = replace(second, snapshot=SnapshotRequest("5f", True, ("a", "b"), "{}"), asked=1)
    async with backing.open() as opened:
        assert await opened.orders.load("orders") is None
        assert await opened.orders.give(FIRST)
        assert await opened.orders.give(second)
        assert await opened.orders.give(replace(FIRST, scope="a", number=1_795_707_254_496))
    async with backing.open() as opened:
        assert await opened.orders.load("orders") == second
        assert [each.scope for each in (await opened.orders.list()).orders] == ["a", "orders"]


async def test_only_the_next_order_is_stored_and_the_same_one_may_be_given_again(
    store: OrderStore,
) -> None:
    assert await store.give(FIRST)
    assert await store.give(FIRST), "its answer may have been lost"
    for other in (replace(FIRST, by="bob"), replace(FIRST, number=3)):
        assert not await store.give(other)
    assert await store.load("orders") == FIRST


async def test_one_of_two_orders_at_once_is_stored(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        for number in range(1, 10):
            given = {name: replace(FIRST, number=number, by=name) for name in ("one", "two")}
            stores = {"one": one.orders, "two": two.orders}
            outcomes = await asyncio.gather(*(stores[name].give(given[name]) for name in given))
            assert sorted(outcomes) == [False, True]
            stored = await two.orders.load("orders")
            assert stored == given[list(given)[outcomes.index(True)]]


async def test_recent_positions_are_kept_older_ones_sparser_and_those_that_a_seek_left(
    store: OrderStore,
) -> None:
    """Two days, with a position every ten minutes and two seeks on the first one."""
    noted = [
        checkpoint(
            epoch=1 + n // 40,
            sequence=n,
            saved_at=NOW + timedelta(minutes=10 * n),
            obeyed=(n > 5) + (n > 6),
        )
        for n in range(290)
    ]
    other = checkpoint("users")
    for each in [*noted, noted[-1], other]:
        await store.note(each)
    kept = list(await store.positions("orders"))
    assert kept[:RECENT] == noted[: -RECENT - 1 : -1]
    assert kept == sorted(kept, key=lambda each: each.order, reverse=True)
    assert len(kept) <= MOST_POSITIONS
    for left in (noted[5], noted[6]):
        assert left in kept, "a seek left it"
    ages = [(noted[-1].saved_at - each.saved_at).total_seconds() / 3600 for each in kept]
    for hours in (6, 12, 24, 36):
        assert any(abs(age - hours) < hours / 2 for age in ages), f"none is {hours} hours old"
    assert list(await store.positions("users")) == [other]
    assert (await store.list()).orders == []


async def test_a_position_that_a_handler_left_by_a_seek_of_its_own_is_kept(
    store: OrderStore,
) -> None:
    """Whether it then stands last, as the others did, or stands further and alone."""
    noted = []
    for n in range(200):
        together = Subscription(checkpoint(sequence=n).position)
        apart = replace(together, obeyed=1 + (n > 30), position=checkpoint(sequence=n + 1).position)
        both = {"audit": together, "index": apart if n > 5 else together}
        at = NOW + timedelta(minutes=n)
        noted.append(checkpoint(sequence=n, saved_at=at).with_subscriptions(both))
    for each in noted:
        await store.note(each)
    kept = await store.positions("orders")
    assert len(kept) <= MOST_POSITIONS
    assert noted[5] in kept
    assert noted[30] in kept


async def test_positions_of_one_moment_are_bounded_too(store: OrderStore) -> None:
    for n in range(MOST_POSITIONS + RECENT):
        await store.note(checkpoint(sequence=n))
    assert len(await store.positions("orders")) <= MOST_POSITIONS
