"""What the operator's commands on positions print, store and refuse."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from bson.timestamp import Timestamp

from tailrace.cli.checkpoints import list_positions, reset_position, show_position
from tailrace.errors import CheckpointCorrupt, CheckpointFenced, ConfigurationError
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.gap import Gap
from tailrace.model.subscription import Subscription
from tailrace.observe.terminal_text import age
from tailrace.stores.memory import MemoryCheckpoints, MemoryDesiredStates

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
OLD = ResumeToken.of({"_data": "82654321000000000146"})
NEW = ResumeToken.of({"_data": "82671234560000000746"})
ORDERS = Checkpoint(
    scope="orders",
    position=Position(
        kind=PositionKind.EVENT,
        event_token=OLD,
        high_water=OLD,
        cluster_time=Timestamp(1_764_500_000, 3),
    ),
    cluster="5f3a",
    fingerprint="c0ffee",
    epoch=4,
    sequence=17,
    saved_at=NOW - timedelta(seconds=42),
)

GAP = Gap(
    scope="orders",
    token=OLD,
    since=Timestamp(1_764_500_000, 3),
    until=Timestamp(1_764_586_400, 1),
    reason="Resume of change stream was not possible,\n  the oplog is too short (code 286)",
    policy="skip",
    recorded_at=NOW - timedelta(hours=1),
)
UNKNOWN = replace(
    GAP, token=None, since=None, until=None, reason="lost", recorded_at=NOW - timedelta(minutes=30)
)
GAPS_TEXT = (
    "\n"
    "Gaps (changes that were skipped), oldest first:\n"
    "  2025-11-30T10:53:20Z → 2025-12-01T10:53:20Z\n"
    "    policy:      skip\n"
    "    reason:      Resume of change stream was not possible, the oplog is too short (code 286)\n"
    "    recorded at: 2026-11-30T11:00:00Z\n"
    "  - → -\n"
    "    policy:      skip\n"
    "    reason:      lost\n"
    "    recorded at: 2026-11-30T11:30:00Z\n"
)
LISTED = """\
SCOPE   KIND   CLUSTER TIME          EPOCH  SEQUENCE  SAVED AT              AGE    GAPS
orders  event  2025-11-30T10:53:20Z  4      17        2026-11-30T11:59:18Z  42s    2
users   idle   -                     1      123456    2026-11-27T08:00:00Z  3d 4h  0
"""


@pytest.fixture
async def store() -> MemoryCheckpoints:
    """A store with the position and the gaps of one scope."""
    store = MemoryCheckpoints({"orders": ORDERS})
    await store.record_gap(UNKNOWN)
    await store.record_gap(GAP)
    return store


async def test_positions_are_listed_with_a_line_for_each_scope(store: MemoryCheckpoints) -> None:
    saved_at = NOW - timedelta(days=3, hours=4)
    timeless = Position(PositionKind.IDLE, None, NEW, None)
    await store.save(Checkpoint("users", timeless, "", "", 1, 123456, saved_at))
    assert await list_positions(store, NOW) == LISTED


def test_an_age_has_its_two_largest_units() -> None:
    texts = {-5: "0s", 0: "0s", 59: "59s", 60: "1m 0s", 3725: "1h 2m", 90000: "1d 1h"}
    assert {seconds: age(timedelta(seconds=seconds)) for seconds in texts} == texts


async def test_a_position_is_shown_with_every_field_and_the_gaps(store: MemoryCheckpoints) -> None:
    assert await show_position(store, "orders", NOW) == (
        "  scope:        orders\n"
        "  kind:         event\n"
        f"  resumes at:   resumeAfter {OLD.digest}\n"
        '  event token:  {"_data": "82654321000000000146"}\n'
        '  high water:   {"_data": "82654321000000000146"}\n'
        "  cluster time: 2025-11-30T10:53:20Z (Timestamp(1764500000, 3))\n"
        "  cluster:      5f3a\n"
        "  fingerprint:  c0ffee\n"
        "  epoch:        4\n"
        "  sequence:     17\n"
        "  saved at:     2026-11-30T11:59:18Z (42s ago)\n" + GAPS_TEXT
    )


async def test_a_position_is_shown_with_that_of_each_handler() -> None:
    digests = frozenset({"0123456789ab", "ba9876543210"})
    at = Timestamp(1_764_500_010, 1)
    later = replace(ORDERS.position, cluster_time=at)
    apart = {
        "lake": Subscription(later),
        "table": Subscription(replace(later, handled=digests), halted="no such table"),
    }
    record = replace(ORDERS, handlers=("audit",), apart=apart, damaged={"odd": 1})
    text = await show_position(MemoryCheckpoints({"orders": record}), "orders", NOW)
    table = "table: has all up to 2025-11-30T10:53:30Z, and 2 later changes; halted: no such table"
    assert text.endswith(
        "  handler:      audit: has all up to 2025-11-30T10:53:20Z\n"
        "  handler:      lake: has all up to 2025-11-30T10:53:30Z\n"
        f"  handler:      {table}\n"
        "  handler:      odd: cannot be read\n"
    )


async def test_a_position_as_json_is_the_record_and_its_gaps(store: MemoryCheckpoints) -> None:
    document = json.loads(await show_position(store, "orders", NOW, as_json=True))
    gaps = [Gap.from_document(each, where="") for each in document.pop("gaps")]
    assert gaps == [GAP, UNKNOWN]
    assert document == ORDERS.to_document()


async def test_a_scope_without_a_position_is_refused(store: MemoryCheckpoints) -> None:
    with pytest.raises(ConfigurationError, match="scope 'users': has no checkpoint; "):
        await show_position(store, "users", NOW)


async def test_reset_deletes_the_position_and_shows_it(store: MemoryCheckpoints) -> None:
    text = await reset_position(store, MemoryDesiredStates(), "orders", NOW)
    assert OLD.to_json() in text
    assert "Forgotten" in text
    assert await list_positions(store, NOW) == "No checkpoints are stored.\n"
    assert list(await store.gaps("orders")) == [GAP, UNKNOWN]
    with pytest.raises(ConfigurationError, match="has no checkpoint"):
        await reset_position(store, MemoryDesiredStates(), "orders", NOW)


async def test_reset_replaces_a_record_that_cannot_be_read() -> None:
    store = Unreadable(epoch=1)
    assert "(unreadable) it is broken" in await reset_position(
        store, MemoryDesiredStates(), "orders", NOW
    )
    (saved,) = await store.list()
    assert (saved.is_reset, saved.version) == (True, (int(NOW.timestamp()), 1))


async def test_a_save_of_the_daemon_meanwhile_refuses_a_reset() -> None:
    class Raced(MemoryCheckpoints):
        async def save(self, checkpoint: Checkpoint) -> None:
            raise CheckpointFenced("epoch 9 is stored")

    store = Raced({"orders": ORDERS})
    message = "scope 'orders': nothing was reset: epoch 9 is stored. Look at it again, and repeat"
    with pytest.raises(ConfigurationError, match=message):
        await reset_position(store, MemoryDesiredStates(), "orders", NOW)


class Unreadable(MemoryCheckpoints):
    """A store whose one record has a readable epoch but is broken otherwise."""

    def __init__(self, epoch: int) -> None:
        super().__init__({"orders": replace(ORDERS, epoch=epoch, sequence=1)})

    async def load(self, scope: str) -> Checkpoint | None:
        raise CheckpointCorrupt("it is broken")
