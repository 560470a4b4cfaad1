"""What every store keeps of the desired states of scopes, and of where scopes were before."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from bson.timestamp import Timestamp

from tailrace.engine.ports import DesiredStateStore
from tailrace.model.desired_state import DesiredState
from tailrace.model.snapshot import SnapshotRequest
from tailrace.model.subscription import Subscription
from tailrace.stores.former_positions import MOST_POSITIONS, RECENT
from tests.contract.stores import NOW, Backing, checkpoint

FIRST = DesiredState("orders", 1, paused=True, by="ann on laptop at ::1", at=NOW)


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[DesiredStateStore]:
    async with backing.open() as opened:
        yield opened.desired_states


async def test_a_desired_state_comes_back_with_every_field(backing: Backing) -> None:
    position = checkpoint(cluster_time=Timestamp(1_700_000_009, 1)).position
    second = replace(FIRST, generation=2, seek=position, seek_generation=2, fingerprint="c0ffee")
    request = SnapshotRequest("5f", True, ("a", "b"), "{}")
    second = replace(second, snapshot=request, snapshot_generation=1)
    async with backing.open() as opened:
        assert await opened.desired_states.load("orders") is None
        assert await opened.desired_states.write(FIRST)
        assert await opened.desired_states.write(second)
        assert await opened.desired_states.write(
            replace(FIRST, scope="a", generation=1_795_707_254_496)
        )
    async with backing.open() as opened:
        assert await opened.desired_states.load("orders") == second
        assert [each.scope for each in (await opened.desired_states.list()).states] == [
            "a",
            "orders",
        ]


async def test_only_the_next_generation_is_stored_and_the_same_one_may_be_written_again(
    store: DesiredStateStore,
) -> None:
    assert await store.write(FIRST)
    assert await store.write(FIRST), "its answer may have been lost"
    for other in (replace(FIRST, by="bob"), replace(FIRST, generation=3)):
        assert not await store.write(other)
    assert await store.load("orders") == FIRST


async def test_one_of_two_desired_states_at_once_is_stored(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        for generation in range(1, 10):
            written = [replace(FIRST, generation=generation, by=name) for name in ("one", "two")]
            stores = one.desired_states, two.desired_states
            writes = (store.write(state) for store, state in zip(stores, written, strict=True))
            outcomes = await asyncio.gather(*writes)
            assert sorted(outcomes) == [False, True]
            stored = await two.desired_states.load("orders")
            assert stored == written[outcomes.index(True)]


async def test_recent_positions_are_kept_older_ones_sparser_and_those_that_a_seek_left(
    store: DesiredStateStore,
) -> None:
    """Two days, with a position every ten minutes and two seeks on the first one."""
    noted = [
        checkpoint(
            epoch=1 + n // 40,
            sequence=n,
            saved_at=NOW + timedelta(minutes=10 * n),
            observed_generation=(n > 5) + (n > 6),
        )
        for n in range(290)
    ]
    other = checkpoint("users")
    for each in [*noted, noted[-1], other]:
        await store.note(each)
    kept = list(await store.positions("orders"))
    assert kept[:RECENT] == noted[: -RECENT - 1 : -1]
    assert kept == sorted(kept, key=lambda each: each.version, reverse=True)
    assert len(kept) <= MOST_POSITIONS
    for left in (noted[5], noted[6]):
        assert left in kept, "a seek left it"
    ages = [(noted[-1].saved_at - each.saved_at).total_seconds() / 3600 for each in kept]
    for hours in (6, 12, 24, 36):
        assert any(abs(age - hours) < hours / 2 for age in ages), f"none is {hours} hours old"
    assert list(await store.positions("users")) == [other]
    assert (await store.list()).states == []


async def test_a_position_that_a_handler_left_by_a_seek_of_its_own_is_kept(
    store: DesiredStateStore,
) -> None:
    """Whether it then stands last, as the others did, or stands further and alone."""
    noted = []
    for n in range(200):
        together = Subscription(checkpoint(sequence=n).position)
        further = checkpoint(sequence=n + 1).position
        apart = Subscription(further, observed_generation=1 + (n > 30))
        both = {"audit": together, "index": apart if n > 5 else together}
        at = NOW + timedelta(minutes=n)
        noted.append(checkpoint(sequence=n, saved_at=at).with_subscriptions(both))
    for each in noted:
        await store.note(each)
    kept = await store.positions("orders")
    assert len(kept) <= MOST_POSITIONS
    assert noted[5] in kept
    assert noted[30] in kept


async def test_positions_of_one_moment_are_bounded_too(store: DesiredStateStore) -> None:
    for n in range(MOST_POSITIONS + RECENT):
        await store.note(checkpoint(sequence=n))
    assert len(await store.positions("orders")) <= MOST_POSITIONS
