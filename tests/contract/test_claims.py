"""How every store of checkpoints handles the claim of a lease's new owner."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from tailrace.engine.ports import CheckpointStore
from tailrace.errors import CheckpointFenced
from tests.contract.stores import Backing, checkpoint


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[CheckpointStore]:
    async with backing.open() as opened:
        yield opened.checkpoints


async def test_a_claim_keeps_the_position_and_raises_the_epoch(store: CheckpointStore) -> None:
    stored = checkpoint(epoch=3, sequence=7)
    await store.save(stored)
    claimed = await store.claim("orders", 9)
    assert claimed == checkpoint(epoch=9, sequence=0)
    assert await store.load("orders") == claimed
    await store.save(checkpoint(epoch=9, sequence=1))


async def test_a_claim_of_nothing_makes_a_record_without_a_position(store: CheckpointStore) -> None:
    claimed = await store.claim("orders", 4)
    assert claimed.is_reset
    assert claimed.version == (4, 0)
    assert await store.load("orders") == claimed


@pytest.mark.parametrize("epoch", [1, 3])
async def test_a_claim_that_is_not_newer_is_refused(store: CheckpointStore, epoch: int) -> None:
    """An equal one too: a process unsure whether its claim arrived takes a greater epoch."""
    stored = checkpoint(epoch=3, sequence=0)
    await store.save(stored)
    with pytest.raises(CheckpointFenced, match="epoch 3, sequence 0 is stored"):
        await store.claim("orders", epoch)
    assert await store.load("orders") == stored


async def test_nothing_is_saved_between_a_claim_and_what_it_returns(backing: Backing) -> None:
    """The former owner keeps saving: the claim returns earlier saves, later ones are refused."""
    async with backing.open() as former, backing.open() as new:
        await former.checkpoints.save(checkpoint(sequence=0))
        accepted = 0
        claimed = None

        async def save() -> None:
            nonlocal accepted
            for sequence in range(1, 10_000):
                try:
                    await former.checkpoints.save(
                        checkpoint(sequence=sequence, fingerprint=f"{sequence}")
                    )
                except CheckpointFenced:
                    return
                accepted = sequence

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save)
            while accepted < 5:
                await anyio.lowlevel.checkpoint()
            claimed = await new.checkpoints.claim("orders", 2)
        assert claimed.fingerprint == f"{accepted}"
        assert await new.checkpoints.load("orders") == claimed
