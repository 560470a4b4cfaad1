"""A checkpoint has a position for each handler; an order is for all handlers or for one."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CheckpointCorrupt
from tailrace.model import Checkpoint
from tailrace.model.desired_state import DesiredHandler, DesiredState
from tailrace.model.position import Reread
from tailrace.model.snapshot import SnapshotRequest
from tailrace.model.subscription import Subscription
from tests.unit.engine.changes import checkpoint, time

NAMES = ("audit", "lake", "table", "topic")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(n: int, **fields: object) -> Subscription:
    """A handler that has everything up to event ``n``."""
    return replace(checkpoint(n).last, **fields)  # type: ignore[arg-type]


SUBSCRIPTIONS = st.builds(
    at,
    st.integers(1, 4),
    observed_generation=st.integers(0, 1),
    halted=st.sampled_from(["", "why"]),
)
CHANGES = st.dictionaries(st.sampled_from(NAMES), SUBSCRIPTIONS, max_size=4)


@given(st.lists(CHANGES, max_size=5))
def test_every_handler_has_what_was_saved_last_and_equal_ones_are_stored_once(
    saves: list[dict[str, Subscription]],
) -> None:
    record, expected = Checkpoint.nowhere("orders"), dict[str, Subscription]()
    for changed in saves:
        record = record.with_subscriptions(changed)
        expected |= changed
        assert record.subscriptions == expected
        assert {name: record.of(name) for name in NAMES} == {
            name: expected.get(name) for name in NAMES
        }
        read = Checkpoint.from_document(record.to_document(), where="here")
        assert read == record
    if expected:
        assert not any(each.position.is_before(record.last.position) for each in expected.values())
        assert set(record.handlers) == {n for n, each in expected.items() if each == record.last}
        assert set(record.apart) == expected.keys() - set(record.handlers)
    else:
        assert record.is_reset


def test_a_position_without_names_is_that_of_every_handler() -> None:
    everybody = checkpoint(5)
    assert everybody.of("audit") == everybody.of("whoever") == everybody.last
    assert replace(everybody, handlers=("audit",)).of("whoever") is None
    assert Checkpoint.nowhere("orders").of("audit") is None


def test_handlers_at_one_position_keep_where_each_began() -> None:
    """A handler that was added later did not get the changes before; nor what another reread."""
    early, late = at(5), at(5)
    early = replace(early, position=replace(early.position, started=time(1)))
    late = replace(late, position=replace(late.position, started=time(4)))
    again = replace(early, position=replace(early.position, reread={"x": Reread(NOW, time(2))}))
    record = checkpoint(1).with_subscriptions({"audit": early, "lake": late, "table": again})
    stored = Checkpoint.from_document(record.to_document(), where="here")
    started = {name: each.position.started for name, each in stored.subscriptions.items()}
    assert started == {"audit": time(1), "lake": time(4), "table": time(1)}
    assert {n for n, each in stored.subscriptions.items() if each.position.reread} == {"table"}


DESIRED = DesiredState(
    "orders", 9, False, "ops", NOW, checkpoint(3).position, 5, "of all", snapshot_generation=5
)


def test_the_later_change_counts_whether_it_is_for_all_or_for_one() -> None:
    own = DesiredHandler(seek=checkpoint(7).position, seek_generation=6, fingerprint="own")
    both = replace(DESIRED, handlers={"audit": own, "lake": replace(own, seek_generation=4)})
    assert (both.of("audit").seek, both.of("audit").fingerprint) == (own.seek, "own")
    for name in ("lake", "table"):
        assert (both.of(name).seek, both.of(name).seek_generation) == (DESIRED.seek, 5)
    # What is wanted of the snapshot is another matter.
    wish = SnapshotRequest("5f3a", new=True)
    rows = replace(both, handlers={"table": DesiredHandler(snapshot=wish, snapshot_generation=8)})
    assert (rows.of("table").snapshot, rows.of("table").seek_generation) == (wish, 5)
    assert (rows.of("audit").snapshot, rows.of("audit").snapshot_generation) == (None, 5)


def test_a_pause_of_all_and_a_pause_of_one() -> None:
    one = replace(DESIRED, handlers={"audit": DesiredHandler(paused=True)})
    assert [one.of(name).paused for name in ("audit", "lake")] == [True, False]
    assert replace(one, paused=True).of("lake").paused


@pytest.mark.parametrize(
    "wrong",
    [{"seek_generation": 10}, {"snapshot_generation": 10}, {"seek_generation": -1}],
    ids=str,
)
def test_the_generations_of_a_desired_handler_are_checked_too(wrong: dict[str, int]) -> None:
    desired = replace(DESIRED, handlers={"audit": DesiredHandler(**wrong)})  # type: ignore[arg-type]
    with pytest.raises(CheckpointCorrupt, match="its generations are not in order"):
        DesiredState.from_document(desired.to_document(), where="here")


def test_a_handler_that_was_removed_keeps_its_position_and_does_not_stand_last() -> None:
    record = Checkpoint.nowhere("orders").with_subscriptions({"gone": at(1), "audit": at(5)})
    assert record.position == at(1).position
    now = record.with_subscriptions({"audit": at(5)}, ["audit"])
    assert now.position == at(5).position
    assert now.of("gone") == at(1)
