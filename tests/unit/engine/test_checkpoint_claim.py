"""One record for all handlers of a scope: its writer saves each beside the others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tailrace.engine.checkpoint_claim import CheckpointClaim, as_former
from tailrace.engine.ports import RunIdentity
from tailrace.errors import CheckpointError, CheckpointFenced
from tailrace.model import Checkpoint
from tailrace.model.snapshot import SnapshotMode, SnapshotProgress
from tailrace.model.subscription import Subscription
from tests.unit.engine.changes import checkpoint, time
from tests.unit.engine.stores import ScriptedStore

IDENTITY = RunIdentity("orders", "rs0/abc", "f", 1)


def at(n: int, **fields: object) -> Subscription:
    return replace(checkpoint(n).last, **fields)  # type: ignore[arg-type]


async def claimed(
    store: ScriptedStore, handlers: Sequence[str] = ("audit", "lake")
) -> CheckpointClaim:
    """A new process's claim, which has loaded the record."""
    claim = CheckpointClaim("orders", handlers)
    await claim.load(store)
    return claim


async def test_each_stream_saves_its_handlers_and_leaves_the_others_as_they_are() -> None:
    store = ScriptedStore()
    claim = await claimed(store)
    assert [claim.of(name) for name in claim.handlers] == [None, None]
    await claim.save(store, IDENTITY, {"audit": at(5), "lake": at(5)})
    await claim.save(store, IDENTITY, {"lake": at(9)})
    await claim.save(store, IDENTITY, {"audit": at(7, halted="why")})
    assert (claim.of("audit"), claim.of("lake")) == (at(7, halted="why"), at(9))
    again = await claimed(store)
    assert (again.of("audit"), again.of("lake")) == (at(7, halted="why"), at(9))
    record = store.records["orders"]
    assert (record.position, record.halted) == (at(7).position, "why")
    assert [each.sequence for each in store.saved] == [1, 2, 3]
    assert {each.cluster for each in store.saved} == {"rs0/abc"}


async def test_a_save_that_failed_changes_nothing_for_the_others() -> None:
    """It may be stored all the same: no later save has its number."""
    store = ScriptedStore()
    claim = await claimed(store)
    await claim.save(store, IDENTITY, {"audit": at(5), "lake": at(5)})
    store.lying = 1
    with pytest.raises(CheckpointError):
        await claim.save(store, IDENTITY, {"lake": at(9)})
    await claim.save(store, IDENTITY, {"audit": at(6)})
    assert [each.sequence for each in store.attempts] == [1, 2, 3]
    assert claim.of("lake") == at(5)


async def test_a_move_replaces_what_the_store_did_not_take_before() -> None:
    """Else the handler would be back there at each load, and be moved again, for ever."""
    store = ScriptedStore()
    claim = await claimed(store)
    await claim.save(store, IDENTITY, {"audit": at(5)})
    claim.unsaved["audit"] = at(7)
    await claim.load(store)
    assert claim.of("audit") == at(7)
    await claim.save(store, IDENTITY, {"audit": at(2)})
    await claim.load(store)
    assert (claim.of("audit"), claim.unsaved) == (at(2), {})


async def test_the_note_of_a_halt_has_what_the_store_did_not_take_before() -> None:
    """No later run saves it: the next one may be that of another process."""
    store = ScriptedStore()
    claim = await claimed(store)
    await claim.save(store, IDENTITY, {"audit": at(5), "lake": at(5)})
    claim.unsaved |= {"audit": at(7), "lake": at(8)}
    await claim.note_halt(store, ["audit"], "why")
    again = await claimed(store)
    assert (again.of("audit"), again.of("lake")) == (at(7, halted="why"), at(5))
    assert claim.unsaved == {"lake": at(8)}


async def test_a_position_for_everybody_is_that_of_each_handler() -> None:
    """As an operator sets it in the store."""
    claim = await claimed(store := ScriptedStore(checkpoint(5)))
    assert claim.of("audit") == claim.of("lake") == at(5)
    await claim.save(store, IDENTITY, {"lake": at(9)})
    assert store.records["orders"].handlers == ("audit",)


async def test_a_handler_that_was_removed_keeps_its_place_for_its_return() -> None:
    store = ScriptedStore(checkpoint(5, handlers=("audit", "lake")))
    claim = await claimed(store, ["lake"])
    await claim.save(store, IDENTITY, {"lake": at(9)})
    assert (await claimed(store)).of("audit") == at(5)


async def test_a_damaged_position_is_nobodys_until_it_is_replaced() -> None:
    store = ScriptedStore(checkpoint(5, damaged={"audit": {"kind": "odd"}}))
    claim = await claimed(store)
    assert (claim.of("audit"), claim.of("lake")) == (None, at(5))
    await claim.save(store, IDENTITY, {"lake": at(9)})
    again = await claimed(store)
    assert (again.of("audit"), again.of("lake")) == (None, at(9))
    await again.save(store, IDENTITY, {"audit": at(2)})
    assert (again.of("audit"), store.records["orders"].damaged) == (at(2), {})


async def test_the_reason_of_a_halt_is_that_of_the_handlers_that_are_halted() -> None:
    store = ScriptedStore(checkpoint(5))
    claim = await claimed(store)
    noted = await claim.note_halt(store, ["lake"], "no such table")
    assert noted is not None
    assert (noted.subscriptions["audit"].halted, noted.subscriptions["lake"].halted) == (
        "",
        "no such table",
    )
    assert await CheckpointClaim("orders", ["lake"]).note_halt(store, ["lake"], "x") is None


async def test_a_record_that_somebody_else_has_written_since_is_not_read_over() -> None:
    store = ScriptedStore(checkpoint(5))
    claim = await claimed(store)
    await claim.save(store, IDENTITY, {"lake": at(9)})
    store.records["orders"] = replace(store.records["orders"], sequence=2)
    with pytest.raises(CheckpointFenced, match="epoch 2, sequence 2, newer than"):
        await claim.load(store)


async def test_a_record_that_went_back_is_replaced_by_what_this_process_saved() -> None:
    """For every handler: the store was put back, not the destinations."""
    store = ScriptedStore()
    claim = await claimed(store)
    await claim.save(store, IDENTITY, {"audit": at(3), "lake": at(3)})
    backup = store.records["orders"]
    await claim.save(store, IDENTITY, {"audit": at(5)})
    await claim.save(store, IDENTITY, {"lake": at(9)})
    store.records["orders"] = backup
    found = await claim.load(store)
    assert found == claim.saved
    assert (claim.of("audit"), claim.of("lake")) == (at(5), at(9))


@pytest.mark.parametrize(
    ("record", "of_audit", "of_new"),
    [
        (None, 0, 0),
        (checkpoint(5, observed_generation=3), 3, 3),
        (
            checkpoint(
                5,
                observed_generation=3,
                handlers=("audit",),
                apart={"lake": at(9, observed_generation=7)},
            ),
            3,
            7,
        ),
        (replace(Checkpoint.nowhere("orders"), epoch=2, sequence=1, observed_generation=7), 7, 7),
    ],
    ids=["first start", "for everybody", "each its own", "reset"],
)
async def test_a_handler_without_a_position_does_not_move_as_was_wanted_before_it(
    record: Checkpoint | None, of_audit: int, of_new: int
) -> None:
    """An old move of the scope would lead a handler back that is added today."""
    claim = await claimed(ScriptedStore(*([record] if record else [])), ["audit", "new"])
    assert (claim.observed_by("audit"), claim.observed_by("new")) == (of_audit, of_new)
    assert claim.observed_generation == min(of_audit, of_new)


def test_a_former_position_has_what_is_small() -> None:
    large = at(5)
    position = replace(
        large.position,
        stored="digest",
        handled=frozenset({"0123456789ab"}),
        until=time(9),
        snapshot=SnapshotProgress("5f3a", SnapshotMode.INITIAL),
    )
    record = checkpoint(3).with_subscriptions({"audit": replace(large, position=position)})
    former = as_former(record.with_subscriptions({"lake": at(9, observed_generation=2)}))
    assert former.subscriptions == {"audit": at(5), "lake": at(9, observed_generation=2)}


async def test_what_others_take_later_does_not_undo_a_move_of_a_handler_without_a_position() -> (
    None
):
    """Both were moved, one after the other, and the last one saved its position first."""
    store = ScriptedStore(checkpoint(5, handlers=("audit",)))
    claim = await claimed(store, ["audit", "new"])
    await claim.save(store, IDENTITY, {"audit": at(9, observed_generation=8)})
    await claim.load(store)
    assert (claim.observed_by("audit"), claim.observed_by("new")) == (8, 0)
