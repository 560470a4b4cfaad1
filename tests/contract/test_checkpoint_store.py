"""What every store of checkpoints and gaps keeps, refuses and guarantees."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from datetime import timedelta
from typing import Any

import anyio
import pytest
from bson.binary import Binary
from bson.int64 import Int64
from bson.timestamp import Timestamp

from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointFenced
from tailrace.model import PositionKind, ResumeToken
from tailrace.model.gap import Gap
from tests.contract.stores import NOW, TOKEN, Backing, checkpoint, gap


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[CheckpointStore]:
    async with backing.open() as opened:
        yield opened.checkpoints


VARIANTS = {
    "idle": checkpoint(kind=PositionKind.IDLE, event_token=None),
    "invalidate": checkpoint(kind=PositionKind.INVALIDATE, high_water=None),
    "time only": checkpoint(kind=PositionKind.IDLE, event_token=None, high_water=None),
    "greatest time": checkpoint(cluster_time=Timestamp(2**32 - 1, 2**32 - 1)),
    "greatest order": checkpoint(epoch=2**63 - 1, sequence=2**63 - 1),
    "token of integers": checkpoint(
        high_water=ResumeToken.of({"_data": Int64(7), "n": 7, "deep": {"x": [1.5, None, True]}})
    ),
    "single events that are handled": checkpoint(
        stored=TOKEN.digest,
        chosen=True,
        handled=frozenset(f"{n:012x}" for n in range(250_000)),
        until=Timestamp(1_700_000_009, 1),
    ),
    "several handlers": checkpoint().with_subscriptions(
        {
            "audit": checkpoint().last,
            "lake $.%": checkpoint().last,
            "table.of 'x' \"y\" ☃": checkpoint(
                observed_generation=7,
                halted="no such table",
                cluster_time=Timestamp(1_700_000_009, 1),
                stored=TOKEN.digest,
                handled=frozenset({"0123456789ab"}),
            ).last,
        }
    ),
    "name": checkpoint(scope="Bücher: 'x' \"y\" $.%\n☃ 💧"),
}


async def test_every_field_of_a_checkpoint_comes_back(backing: Backing) -> None:
    """To another process too: the store is reopened."""
    saved = dict(VARIANTS)
    for number, (name, each) in enumerate(saved.items()):
        scope = each.scope if name == "name" else f"scope-{number}"
        saved[name] = replace(each, scope=scope, saved_at=NOW.astimezone())
        async with backing.open() as opened:
            await opened.checkpoints.save(saved[name])
    async with backing.open() as opened:
        for each in saved.values():
            assert await opened.checkpoints.load(each.scope) == each
        assert {each.scope: each for each in await opened.checkpoints.list()} == {
            each.scope: each for each in saved.values()
        }


@pytest.mark.parametrize("wrong", [5, "odd", None, {}, {"kind": "odd", "deep": [1.5, {"x": None}]}])
async def test_a_damaged_position_of_one_handler_leaves_the_others_readable(
    backing: Backing, wrong: Any
) -> None:
    """Every later write puts it back as it was, whoever writes: also a claim does."""
    lake = checkpoint(cluster_time=Timestamp(1_700_000_009, 1)).last
    stored = checkpoint(damaged={"audit.x": wrong}).with_subscriptions({"lake": lake})
    async with backing.open() as opened:
        await opened.checkpoints.save(stored)
    async with backing.open() as opened:
        found = await opened.checkpoints.load("orders")
        assert found == stored
        assert found.of("audit.x") is None
        assert found.of("lake") == lake
        assert await opened.checkpoints.list() == [stored]
        claimed = await opened.checkpoints.claim("orders", 9)
        assert claimed == replace(stored, epoch=9, sequence=0, saved_at=claimed.saved_at)
        await opened.checkpoints.save(replace(claimed, sequence=1))
        # A new position takes its place.
        mended = claimed.with_subscriptions({"audit.x": lake})
        after = await opened.checkpoints.load("orders")
        assert after is not None
        assert after.damaged == {"audit.x": wrong}
        await opened.checkpoints.save(replace(mended, sequence=2))
        after = await opened.checkpoints.load("orders")
        assert after is not None
        assert (after.of("audit.x"), after.damaged) == (lake, {})


async def test_the_position_of_handlers_that_stand_together_is_stored_once(
    store: CheckpointStore,
) -> None:
    many = {f"handler-{n}": checkpoint().last for n in range(50)}
    together = checkpoint().with_subscriptions(many)
    await store.save(together)
    found = await store.load("orders")
    assert found is not None
    assert (len(found.handlers), found.apart) == (50, {})
    assert found.subscriptions == many
    assert len(str(found.to_document())) < 2_000


@pytest.mark.parametrize("order", [(2, 6), (3, 1)])
async def test_a_newer_save_replaces_the_checkpoint(
    store: CheckpointStore, order: tuple[int, int]
) -> None:
    await store.save(checkpoint(epoch=2, sequence=5))
    newer = checkpoint("orders", *order, high_water=ResumeToken.of({"_data": "82FF"}))
    await store.save(newer)
    assert await store.load("orders") == newer


@pytest.mark.parametrize("order", [(2, 10), (2, 9), (1, 11), (0, 0)])
async def test_a_save_that_is_not_newer_is_refused(
    store: CheckpointStore, order: tuple[int, int]
) -> None:
    """An equal one too: a process unsure whether a save arrived uses the next sequence."""
    stored = checkpoint(epoch=2, sequence=10)
    await store.save(stored)
    with pytest.raises(CheckpointFenced) as caught:
        await store.save(checkpoint("orders", *order, high_water=None))
    assert "scope 'orders': epoch 2, sequence 10 is stored" in str(caught.value)
    assert f"epoch {order[0]}, sequence {order[1]} was not saved" in str(caught.value)
    assert "another process follows this scope" in str(caught.value)
    assert await store.load("orders") == stored


async def test_the_list_is_in_order_of_names(store: CheckpointStore) -> None:
    names = ["b", "a", "ä", "B", "aa", "10", "9", "💧", "\uffee"]
    for name in names:
        await store.save(checkpoint(name))
    assert [each.scope for each in await store.list()] == sorted(names)


async def test_reset_forgets_one_scope(store: CheckpointStore) -> None:
    await store.save(checkpoint("orders", epoch=7))
    await store.save(checkpoint("users"))
    await store.record_gap(gap())
    assert await store.reset("orders")
    assert not await store.reset("orders")
    assert await store.load("orders") is None
    assert list(await store.gaps("orders")) == [gap()], "they are history"
    assert [each.scope for each in await store.list()] == ["users"]
    await store.save(checkpoint("orders"))


async def test_exactly_one_of_two_equal_saves_wins(backing: Backing) -> None:
    """Two processes follow the scope: the second is refused, and sees what the first has saved."""
    async with backing.open() as one, backing.open() as two:
        for sequence in range(1, 21):
            rivals = {"one": one.checkpoints, "two": two.checkpoints}
            outcomes = await asyncio.gather(
                *(
                    store.save(checkpoint(sequence=sequence, cluster=name))
                    for name, store in rivals.items()
                ),
                return_exceptions=True,
            )
            refused = [isinstance(each, CheckpointFenced) for each in outcomes]
            assert sorted(refused) == [False, True]
            for store in rivals.values():
                stored = await store.load("orders")
                assert stored is not None
                assert stored.cluster == list(rivals)[refused.index(False)]


async def test_the_newest_of_concurrent_first_saves_stays(backing: Backing) -> None:
    """Two first writes may collide in the store; the newer one must not lose to the older."""
    async with backing.open() as one, backing.open() as two:
        for round_ in range(10):
            scope = f"scope-{round_}"
            saves = [
                (one if sequence % 2 else two).checkpoints.save(
                    checkpoint(scope, sequence=sequence)
                )
                for sequence in range(1, 9)
            ]
            outcomes = await asyncio.gather(*saves, return_exceptions=True)
            assert outcomes[-1] is None
            assert all(each is None or isinstance(each, CheckpointFenced) for each in outcomes)
            stored = await one.checkpoints.load(scope)
            assert stored is not None
            assert stored.sequence == 8


@pytest.mark.parametrize("how", ["scope", "task"])
async def test_a_cancelled_write_leaves_a_sound_store(store: CheckpointStore, how: str) -> None:
    """At any moment of the cancel: the store has the old or the new record, and works."""
    await store.save(checkpoint())
    expected: list[Gap] = []
    for delay in range(1, 30):
        newer, before = checkpoint(epoch=delay + 1), await store.load("orders")
        new = gap(recorded_at=NOW + timedelta(hours=delay))
        await _cancelled(how, delay, store.save(newer))
        assert await store.load("orders") in (before, newer)
        await _cancelled(how, delay, store.record_gap(new))
        assert list(await store.gaps("orders")) in (expected, [*expected, new])
        expected.append(new)
        await store.save(checkpoint(epoch=delay + 1, sequence=2))
        await store.record_gap(new)
    assert list(await store.gaps("orders")) == expected


async def _cancelled(how: str, turns: int, writing: Coroutine[Any, Any, None]) -> None:
    """Starts a write, and cancels it after this many turns of the event loop."""

    async def write() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await writing

    scopes: list[anyio.CancelScope] = []
    task = asyncio.create_task(write())
    for _ in range(turns):
        await asyncio.sleep(0)
    if how == "task":
        task.cancel()
    else:
        scopes[0].cancel()
    await asyncio.gather(task, return_exceptions=True)


GAPS = [
    gap(token=None, since=None, until=None),
    gap(until=Timestamp(2**32 - 1, 2**32 - 1)),
    gap(token=ResumeToken.of({"_data": Binary(b"\x00\xff", 6)})),
    gap(reason="Bücher: 'x' \"y\" $.%\n☃ 💧 \0", policy=""),
    gap(recorded_at=(NOW + timedelta(hours=1)).astimezone()),
    gap(recorded_at=NOW + timedelta(microseconds=1)),
]
"""Gaps that differ in one field each."""


async def test_every_field_of_a_gap_comes_back(backing: Backing) -> None:
    for each in GAPS:
        async with backing.open() as opened:
            await opened.checkpoints.record_gap(each)
    async with backing.open() as opened:
        assert set(await opened.checkpoints.gaps("orders")) == set(GAPS)


async def test_identical_gaps_are_one(backing: Backing) -> None:
    """A process that does not know whether a gap was recorded records it again."""
    async with backing.open() as one, backing.open() as two:
        stores = (one.checkpoints, two.checkpoints)
        for number in range(10):
            same = gap(f"scope-{number}", recorded_at=NOW.astimezone())
            await asyncio.gather(*(each.record_gap(same) for each in stores * 2))
            await stores[1].record_gap(gap(f"scope-{number}"))
            assert list(await stores[0].gaps(same.scope)) == [same]


async def test_the_oldest_gap_is_first(store: CheckpointStore) -> None:
    """By the time in the gaps, in any order of arrival, with fractions of a second or none."""
    whole = NOW.replace(microsecond=0)
    offsets = [timedelta(seconds=s) for s in (-9e6, -1, -0.5, 0, 1e-6, 0.5, 1, 9, 10, 9e6)]
    gaps = [gap(recorded_at=whole + offset) for offset in offsets]
    for each in gaps[::2] + gaps[::-2]:
        await store.record_gap(each)
    assert list(await store.gaps("orders")) == gaps


async def test_each_scope_has_its_own_gaps_apart_from_positions(store: CheckpointStore) -> None:
    names = ["fox", "gap", "gap-1", "gap.x", "gap0", "gapa", "gaq", "order", "orders"]
    for name in names:
        await store.record_gap(gap(name))
    for name in names:
        assert list(await store.gaps(name)) == [gap(name)]
    assert list(await store.list()) == []
    assert await store.load("orders") is None
    for name in names:
        await store.save(checkpoint(name))
    assert list(await store.list()) == [checkpoint(name) for name in names]
    assert await store.load("gap") == checkpoint("gap")
