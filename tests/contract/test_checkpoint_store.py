"""What every checkpoint store keeps, refuses and promises, whatever it writes to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.checkpoints.memory import MemoryStore
from tailrace.checkpoints.sqlite import SqliteStore
from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointFenced
from tailrace.model import CheckpointKind, Progress, ResumeToken
from tailrace.model.gap import Gap
from tests.contract.checkpoint_stores import (
    NOW,
    TOKEN,
    Backing,
    MemoryBacking,
    MongoBacking,
    SqliteBacking,
    checkpoint,
    gap,
)


@pytest.fixture(params=["memory", "sqlite", pytest.param("mongodb", marks=pytest.mark.integration)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    if request.param == "memory":
        return MemoryBacking()
    if request.param == "sqlite":
        return SqliteBacking(tmp_path / "checkpoints.db")
    return MongoBacking(request.getfixturevalue("server"), f"c{uuid.uuid4().hex}")


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[CheckpointStore]:
    async with backing.open() as store:
        yield store


async def test_nothing_is_stored_at_first(store: CheckpointStore) -> None:
    assert await store.load("orders") is None
    assert list(await store.list()) == []


VARIANTS = {
    "event": checkpoint(),
    "idle": checkpoint(kind=CheckpointKind.IDLE, event_token=None),
    "invalidate": checkpoint(kind=CheckpointKind.INVALIDATE, high_water=None),
    "time only": checkpoint(kind=CheckpointKind.IDLE, event_token=None, high_water=None),
    "no time": checkpoint(cluster_time=None),
    "greatest time": checkpoint(cluster_time=Timestamp(2**32 - 1, 2**32 - 1)),
    "unknown cluster": checkpoint(cluster="", fingerprint=""),
    "greatest order": checkpoint(epoch=2**63 - 1, sequence=2**63 - 1),
    "binary token": checkpoint(event_token=ResumeToken.of({"_data": Binary(b"\x00\xff", 6)})),
    "token of integers": checkpoint(
        high_water=ResumeToken.of({"_data": Int64(7), "n": 7, "deep": {"x": [1.5, None, True]}})
    ),
    "handlers that are ahead": checkpoint(
        owned={"table": TOKEN.digest},
        ahead={
            "table": Progress(TOKEN, Timestamp(1_700_000_000, 3)),
            "audit": Progress(
                handled=frozenset(f"{n:012x}" for n in range(250_000)),
                until=Timestamp(1_700_000_009, 1),
            ),
        },
    ),
    "name": checkpoint(scope="Bücher: 'x' \"y\" $.%\n☃ 💧"),
}


@pytest.mark.parametrize("name", VARIANTS)
async def test_every_field_comes_back(backing: Backing, name: str) -> None:
    saved = VARIANTS[name]
    async with backing.open() as store:
        await store.save(saved)
        assert await store.load(saved.scope) == saved
    async with backing.open() as store:
        assert await store.load(saved.scope) == saved
        assert list(await store.list()) == [saved]


async def test_the_zone_of_the_clock_does_not_matter(store: CheckpointStore) -> None:
    saved = checkpoint(saved_at=NOW.astimezone())
    await store.save(saved)
    loaded = await store.load("orders")
    assert loaded is not None
    assert loaded.saved_at == NOW


@pytest.mark.parametrize("order", [(2, 6), (3, 1)])
async def test_a_newer_save_replaces(store: CheckpointStore, order: tuple[int, int]) -> None:
    await store.save(checkpoint(epoch=2, sequence=5))
    newer = checkpoint("orders", *order, high_water=ResumeToken.of({"_data": "82FF"}))
    await store.save(newer)
    assert await store.load("orders") == newer


@pytest.mark.parametrize("order", [(2, 5), (2, 4), (1, 9), (0, 0)])
async def test_a_save_that_is_not_newer_is_refused(
    store: CheckpointStore, order: tuple[int, int]
) -> None:
    """Also an equal one: who does not know whether a save arrived takes the next sequence."""
    stored = checkpoint(epoch=2, sequence=5)
    await store.save(stored)
    with pytest.raises(CheckpointFenced) as caught:
        await store.save(checkpoint("orders", *order, high_water=None))
    assert "scope 'orders': epoch 2, sequence 5 is stored" in str(caught.value)
    assert f"epoch {order[0]}, sequence {order[1]} was not saved" in str(caught.value)
    assert "another process follows this scope" in str(caught.value)
    assert await store.load("orders") == stored


async def test_orders_are_numbers_and_not_text(store: CheckpointStore) -> None:
    await store.save(checkpoint(sequence=9))
    await store.save(checkpoint(sequence=10))
    with pytest.raises(CheckpointFenced):
        await store.save(checkpoint(sequence=9))


async def test_the_list_is_in_order_of_names(store: CheckpointStore) -> None:
    names = ["b", "a", "ä", "B", "aa", "10", "9", "💧", "\uffee"]
    for name in names:
        await store.save(checkpoint(name))
    assert [each.scope for each in await store.list()] == sorted(names)


async def test_a_long_list_is_whole(store: CheckpointStore) -> None:
    names = [f"scope-{number:03}" for number in range(205)]
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(store.save, checkpoint(name))
    assert [each.scope for each in await store.list()] == names


async def test_reset_forgets_one_scope(store: CheckpointStore) -> None:
    await store.save(checkpoint("orders", epoch=7))
    await store.save(checkpoint("users"))
    assert await store.reset("orders")
    assert not await store.reset("orders")
    assert await store.load("orders") is None
    assert [each.scope for each in await store.list()] == ["users"]
    await store.save(checkpoint("orders"))


async def test_scopes_do_not_disturb_each_other(store: CheckpointStore) -> None:
    await store.save(checkpoint("orders", epoch=9, sequence=9))
    await store.save(checkpoint("users"))
    assert await store.load("users") == checkpoint("users")
    assert await store.load("orders") == checkpoint("orders", epoch=9, sequence=9)


async def test_two_stores_see_each_other(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        await one.save(checkpoint(epoch=1))
        await two.save(checkpoint(epoch=2))
        with pytest.raises(CheckpointFenced):
            await one.save(checkpoint(epoch=1, sequence=2))
        assert await one.load("orders") == checkpoint(epoch=2)


async def test_of_equal_saves_exactly_one_wins(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        for sequence in range(1, 21):
            rivals = {"one": one, "two": two}
            outcomes = await asyncio.gather(
                *(
                    store.save(checkpoint(sequence=sequence, cluster=name))
                    for name, store in rivals.items()
                ),
                return_exceptions=True,
            )
            refused = [isinstance(each, CheckpointFenced) for each in outcomes]
            assert sorted(refused) == [False, True]
            stored = await one.load("orders")
            assert stored is not None
            assert stored.cluster == list(rivals)[refused.index(False)]


async def test_of_concurrent_first_saves_the_newest_stays(backing: Backing) -> None:
    """Two first writes can collide in the store; the greater must not be lost to the lesser."""
    async with backing.open() as one, backing.open() as two:
        for round_ in range(10):
            scope = f"scope-{round_}"
            saves = [
                (one if sequence % 2 else two).save(checkpoint(scope, sequence=sequence))
                for sequence in range(1, 9)
            ]
            outcomes = await asyncio.gather(*saves, return_exceptions=True)
            assert outcomes[-1] is None
            assert all(each is None or isinstance(each, CheckpointFenced) for each in outcomes)
            stored = await one.load(scope)
            assert stored is not None
            assert stored.sequence == 8


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_cancelled_save_leaves_a_sound_store(backing: Backing, how: str) -> None:
    """Whatever the moment of the cancel: the old record or the new one, and the store goes on."""
    async with backing.open() as store:
        await store.save(checkpoint())
        for delay in range(1, 30):
            newer = checkpoint(epoch=delay + 1)
            before = await store.load("orders")
            if how == "scope":
                async with anyio.create_task_group() as group:
                    group.start_soon(store.save, newer)
                    await _turns(delay)
                    group.cancel_scope.cancel()
            else:
                task = asyncio.create_task(store.save(newer))
                await _turns(delay)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert await store.load("orders") in (before, newer)
            await store.save(checkpoint(epoch=delay + 1, sequence=2))


async def _turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


ORDERS = st.tuples(st.sampled_from([0, 1]), st.integers(1, 3), st.integers(1, 5))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(ORDERS, max_size=25))
def test_what_is_stored_only_grows(
    kind: str, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]]
) -> None:
    """Two owners save in any interleaving: the greatest order offered so far is what is stored."""

    async def scenario() -> None:
        records: dict[str, object] = {}
        path = tmp_path_factory.mktemp("monotonic") / "checkpoints.db"

        def opened():
            return MemoryStore.open(records) if kind == "memory" else SqliteStore.open(path)

        async with opened() as one, opened() as two:
            greatest = (0, 0)
            for who, epoch, sequence in steps:
                offered = checkpoint(epoch=epoch, sequence=sequence)
                if offered.order > greatest:
                    await (one, two)[who].save(offered)
                    greatest = offered.order
                else:
                    with pytest.raises(CheckpointFenced):
                        await (one, two)[who].save(offered)
                stored = await (two, one)[who].load("orders")
                assert stored is not None
                assert stored.order == greatest

    asyncio.run(scenario())


GAPS = {
    "whole": gap(),
    "nothing known": gap(token=None, since=None, until=None),
    "greatest time": gap(until=Timestamp(2**32 - 1, 2**32 - 1)),
    "binary token": gap(token=ResumeToken.of({"_data": Binary(b"\x00\xff", 6)})),
    "text": gap(reason="Bücher: 'x' \"y\" $.%\n☃ 💧 \0", policy=""),
    "zone of the clock": gap(recorded_at=NOW.astimezone()),
}


class TestGaps:
    async def test_there_are_none_at_first(self, store: CheckpointStore) -> None:
        await store.save(checkpoint())
        assert list(await store.gaps("orders")) == []

    @pytest.mark.parametrize("name", GAPS)
    async def test_every_field_comes_back(self, backing: Backing, name: str) -> None:
        async with backing.open() as store:
            await store.record_gap(GAPS[name])
            assert list(await store.gaps("orders")) == [GAPS[name]]
        async with backing.open() as store:
            assert list(await store.gaps("orders")) == [GAPS[name]]

    async def test_identical_ones_are_one(self, backing: Backing) -> None:
        """Whoever does not know whether a gap was recorded records it again."""
        async with backing.open() as one, backing.open() as two:
            await one.record_gap(gap())
            await one.record_gap(gap())
            await two.record_gap(gap(recorded_at=NOW.astimezone()))
            assert list(await one.gaps("orders")) == [gap()]

    async def test_identical_ones_at_once_are_one(self, backing: Backing) -> None:
        async with backing.open() as one, backing.open() as two:
            for number in range(10):
                same = gap(f"scope-{number}")
                await asyncio.gather(*(each.record_gap(same) for each in (one, two, one, two)))
                assert list(await one.gaps(same.scope)) == [same]

    @pytest.mark.parametrize(
        "other",
        [
            gap(token=None),
            gap(since=None),
            gap(until=Timestamp(1_700_086_400, 2)),
            gap(reason="another"),
            gap(policy="another"),
            gap(recorded_at=NOW + timedelta(microseconds=1)),
        ],
        ids=["token", "since", "until", "reason", "policy", "recorded_at"],
    )
    async def test_ones_that_differ_in_anything_are_two(
        self, store: CheckpointStore, other: Gap
    ) -> None:
        await store.record_gap(gap())
        await store.record_gap(other)
        found = await store.gaps("orders")
        assert len(found) == 2
        assert set(found) == {gap(), other}

    async def test_the_oldest_is_first(self, store: CheckpointStore) -> None:
        """By the time in them, whichever arrived first, and with fractions of a second or none."""
        whole = NOW.replace(microsecond=0)
        offsets = [timedelta(seconds=s) for s in (-9e6, -1, -0.5, 0, 1e-6, 0.5, 1, 9, 10, 9e6)]
        gaps = [gap(recorded_at=whole + offset) for offset in offsets]
        for each in gaps[::2] + gaps[::-2]:
            await store.record_gap(each)
        assert list(await store.gaps("orders")) == gaps

    async def test_many_are_all_there(self, store: CheckpointStore) -> None:
        gaps = [gap(recorded_at=NOW + timedelta(hours=hours)) for hours in range(205)]
        async with anyio.create_task_group() as group:
            for each in gaps:
                group.start_soon(store.record_gap, each)
        assert list(await store.gaps("orders")) == gaps

    async def test_each_scope_has_its_own(self, store: CheckpointStore) -> None:
        names = ["orders", "order", "orders-2", "orders.eu", "Orders", "gap", "gap.orders", "0"]
        for name in names:
            await store.record_gap(gap(name))
        for name in names:
            assert list(await store.gaps(name)) == [gap(name)]

    async def test_positions_are_read_as_if_there_were_none(self, store: CheckpointStore) -> None:
        names = ["fox", "gap", "gap-1", "gap.x", "gap0", "gapa", "gaq", "orders"]
        for name in names:
            await store.record_gap(gap(name))
        assert list(await store.list()) == []
        assert await store.load("orders") is None
        for name in names:
            await store.save(checkpoint(name))
        assert list(await store.list()) == [checkpoint(name) for name in names]
        assert await store.load("gap") == checkpoint("gap")

    async def test_reset_keeps_them(self, store: CheckpointStore) -> None:
        """They are history: a new start does not undo what was skipped."""
        await store.save(checkpoint())
        await store.record_gap(gap())
        assert await store.reset("orders")
        assert not await store.reset("orders")
        assert list(await store.gaps("orders")) == [gap()]
        await store.save(checkpoint())
        assert list(await store.gaps("orders")) == [gap()]

    @pytest.mark.parametrize("how", ["scope", "task"])
    async def test_a_cancelled_record_leaves_a_sound_store(
        self, backing: Backing, how: str
    ) -> None:
        async with backing.open() as store:
            expected = []
            for delay in range(1, 30):
                new = gap(recorded_at=NOW + timedelta(hours=delay))
                if how == "scope":
                    async with anyio.create_task_group() as group:
                        group.start_soon(store.record_gap, new)
                        await _turns(delay)
                        group.cancel_scope.cancel()
                else:
                    task = asyncio.create_task(store.record_gap(new))
                    await _turns(delay)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                assert list(await store.gaps("orders")) in (expected, [*expected, new])
                expected.append(new)
                await store.record_gap(new)
                assert list(await store.gaps("orders")) == expected


async def test_a_store_says_what_it_is(store: CheckpointStore) -> None:
    assert type(store).__name__ in repr(store)
    assert TOKEN.digest not in repr(store)
