"""What the operator's commands on positions print, store and refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.cli.positions import (
    Position,
    list_positions,
    read_position,
    reset_position,
    set_position,
    show_position,
)
from tailrace.cli.terminal_text import age
from tailrace.errors import CheckpointCorrupt, CheckpointFenced, ConfigurationError
from tailrace.model import Checkpoint, CheckpointKind, Progress, ResumeToken, StartPoint
from tailrace.model.checkpoint import CHOSEN
from tailrace.model.gap import Gap
from tailrace.stores.memory import MemoryCheckpoints

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
OLD = ResumeToken.of({"_data": "82654321000000000146"})
NEW = ResumeToken.of({"_data": "82671234560000000746"})
ORDERS = Checkpoint(
    scope="orders",
    kind=CheckpointKind.EVENT,
    event_token=OLD,
    high_water=OLD,
    cluster_time=Timestamp(1_764_500_000, 3),
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
UNKNOWN = Gap(
    scope="orders",
    token=None,
    since=None,
    until=None,
    reason="lost",
    policy="skip",
    recorded_at=NOW - timedelta(minutes=30),
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
def store() -> MemoryCheckpoints:
    return MemoryCheckpoints()


def refusal(error: pytest.ExceptionInfo[ConfigurationError]) -> str:
    (problem,) = error.value.problems
    return str(problem)


class TestList:
    async def test_of_nothing(self, store: MemoryCheckpoints) -> None:
        assert await list_positions(store, now=NOW) == "No checkpoints are stored.\n"

    async def test_a_line_for_each_scope(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        await store.save(
            Checkpoint(
                scope="users",
                kind=CheckpointKind.IDLE,
                event_token=None,
                high_water=NEW,
                cluster_time=None,
                cluster="",
                fingerprint="",
                epoch=1,
                sequence=123456,
                saved_at=NOW - timedelta(days=3, hours=4),
            )
        )
        await store.record_gap(GAP)
        await store.record_gap(UNKNOWN)
        assert await list_positions(store, now=NOW) == LISTED

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m 0s"), (3725, "1h 2m"), (90000, "1d 1h")],
    )
    def test_ages(self, seconds: int, text: str) -> None:
        assert age(timedelta(seconds=seconds)) == text


class TestShow:
    async def test_every_field_and_whole_tokens(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        assert await show_position(store, "orders", now=NOW) == (
            "  scope:        orders\n"
            "  kind:         event\n"
            f"  goes on at:   resumeAfter {OLD.digest}\n"
            '  event token:  {"_data": "82654321000000000146"}\n'
            '  high water:   {"_data": "82654321000000000146"}\n'
            "  cluster time: 2025-11-30T10:53:20Z (Timestamp(1764500000, 3))\n"
            "  cluster:      5f3a\n"
            "  fingerprint:  c0ffee\n"
            "  epoch:        4\n"
            "  sequence:     17\n"
            "  saved at:     2026-11-30T11:59:18Z (42s ago)\n"
        )

    async def test_what_handlers_have_beyond_it_is_told(self, store: MemoryCheckpoints) -> None:
        digests = frozenset({"0123456789ab", "ba9876543210"})
        at = Timestamp(1_764_500_010, 1)
        ahead = {"lake": Progress(NEW, at), "audit": Progress(None, at, digests, at)}
        await store.save(replace(ORDERS, ahead=ahead))
        text = await show_position(store, "orders", now=NOW)
        assert text.endswith(
            "  ahead:        lake: has all up to 2025-11-30T10:53:30Z\n"
            "  ahead:        audit: has all up to 2025-11-30T10:53:30Z, and 2 later changes\n"
        )

    async def test_as_json_it_is_the_record(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        text = await show_position(store, "orders", now=NOW, as_json=True)
        assert Checkpoint.from_document(json.loads(text), where="") == ORDERS
        assert json.loads(text) == ORDERS.to_document() | {"gaps": []}

    async def test_gaps_are_below_the_position(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        position = await show_position(store, "orders", now=NOW)
        await store.record_gap(UNKNOWN)
        await store.record_gap(GAP)
        assert await show_position(store, "orders", now=NOW) == position + GAPS_TEXT

    async def test_as_json_gaps_are_beside_the_fields_of_the_record(
        self, store: MemoryCheckpoints
    ) -> None:
        await store.save(ORDERS)
        await store.record_gap(UNKNOWN)
        await store.record_gap(GAP)
        document = json.loads(await show_position(store, "orders", now=NOW, as_json=True))
        assert [Gap.from_document(each, where="") for each in document["gaps"]] == [GAP, UNKNOWN]
        assert Checkpoint.from_document(document, where="") == ORDERS

    async def test_gaps_without_a_position(self, store: MemoryCheckpoints) -> None:
        """As after a reset."""
        await store.record_gap(GAP)
        await store.record_gap(UNKNOWN)
        assert await show_position(store, "orders", now=NOW) == (
            "  scope:        orders\n"
            "  (no checkpoint: the scope starts at its start_at)\n" + GAPS_TEXT
        )
        text = await show_position(store, "orders", now=NOW, as_json=True)
        assert json.loads(text) == {
            "scope": "orders",
            "gaps": [GAP.to_document(), UNKNOWN.to_document()],
        }

    async def test_others_gaps_are_not_shown(self, store: MemoryCheckpoints) -> None:
        await store.record_gap(GAP)
        with pytest.raises(ConfigurationError, match="has no checkpoint"):
            await show_position(store, "users", now=NOW)

    async def test_of_nothing(self, store: MemoryCheckpoints) -> None:
        with pytest.raises(ConfigurationError) as caught:
            await show_position(store, "order", now=NOW)
        assert refusal(caught).startswith("scope 'order': has no checkpoint; ")


class TestSet:
    async def test_a_token_keeps_the_cluster_and_fences_the_daemon(
        self, store: MemoryCheckpoints
    ) -> None:
        await store.save(ORDERS)
        text = await set_position(store, "orders", Position(token=NEW), now=NOW)
        after = await store.load("orders")
        assert after == Checkpoint(
            scope="orders",
            kind=CheckpointKind.IDLE,
            event_token=None,
            high_water=NEW,
            cluster_time=Timestamp(0x67123456, 7),
            cluster="5f3a",
            fingerprint="c0ffee",
            epoch=5,
            sequence=1,
            saved_at=NOW,
            owned={CHOSEN: ""},
        )
        assert after.start_point == StartPoint(resume_after=NEW)
        before, _, changed = text.partition("\nAfter:\n")
        assert before.startswith("Before:\n  scope:        orders\n")
        assert OLD.to_json() in before
        assert NEW.to_json() in changed
        assert "\nStored. A daemon that follows it now halts the scope at its next save" in changed
        with pytest.raises(CheckpointFenced):
            await store.save(ORDERS)

    async def test_a_time(self, store: MemoryCheckpoints) -> None:
        position = Position(time=Timestamp(1_700_000_000, 1))
        text = await set_position(store, "new", position, now=NOW)
        after = await store.load("new")
        assert after is not None
        assert after.start_point == StartPoint(at_operation_time=Timestamp(1_700_000_000, 1))
        assert (after.order, after.cluster, after.fingerprint) == ((2, 1), "", "")
        assert text.startswith("Before:\n(nothing)\n")
        assert Checkpoint.from_document(after.to_document(), where="") == after

    async def test_the_token_of_an_invalidate(self, store: MemoryCheckpoints) -> None:
        position = Position(token=NEW, after_invalidate=True)
        await set_position(store, "orders", position, now=NOW)
        after = await store.load("orders")
        assert after is not None
        assert after.kind is CheckpointKind.INVALIDATE
        assert after.start_point == StartPoint(start_after=NEW)

    async def test_a_dry_run_writes_nothing(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        text = await set_position(store, "orders", Position(token=NEW), now=NOW, dry_run=True)
        assert await store.load("orders") == ORDERS
        assert NEW.to_json() in text
        assert text.endswith("Dry run: nothing was written.\n")

    async def test_a_record_that_cannot_be_read_is_replaced(self) -> None:
        """The error about such a record tells the operator to do this."""
        store = Unreadable(order=(900, 1))
        text = await set_position(store, "orders", Position(token=NEW), now=NOW)
        (saved,) = store.saved
        assert saved.order == (int(NOW.timestamp()), 1)
        assert text.startswith("Before:\n(unreadable) it is broken\n")

    async def test_one_whose_order_cannot_be_passed_must_be_reset_first(self) -> None:
        store = Unreadable(order=(2**62, 1))
        with pytest.raises(ConfigurationError, match="tailrace checkpoints reset"):
            await set_position(store, "orders", Position(token=NEW), now=NOW)

    async def test_a_change_meanwhile(self, store: MemoryCheckpoints) -> None:
        class Raced(MemoryCheckpoints):
            async def save(self, checkpoint: Checkpoint) -> None:
                raise CheckpointFenced("epoch 9 is stored")

        with pytest.raises(ConfigurationError) as caught:
            await set_position(Raced({"orders": ORDERS}), "orders", Position(NEW), now=NOW)
        assert refusal(caught) == (
            "scope 'orders': nothing was set: epoch 9 is stored. Look at it again, and repeat"
        )

    async def test_no_greater_epoch(self) -> None:
        last = Checkpoint.from_document(ORDERS.to_document() | {"epoch": 2**63 - 1}, where="")
        store = MemoryCheckpoints({"orders": last})
        with pytest.raises(ConfigurationError, match="reset it, then set it"):
            await set_position(store, "orders", Position(NEW), now=NOW)


class TestReset:
    async def test_it_forgets_and_says_what(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        text = await reset_position(store, "orders", now=NOW)
        assert OLD.to_json() in text
        assert "Forgotten" in text
        with pytest.raises(ConfigurationError, match="has no checkpoint"):
            await show_position(store, "orders", now=NOW)
        assert await list_positions(store, now=NOW) == "No checkpoints are stored.\n"

    async def test_who_followed_the_scope_cannot_bring_it_back(
        self, store: MemoryCheckpoints
    ) -> None:
        await store.save(ORDERS)
        await reset_position(store, "orders", now=NOW)
        with pytest.raises(CheckpointFenced):
            await store.save(replace(ORDERS, sequence=ORDERS.sequence + 1000))
        await set_position(store, "orders", Position(token=NEW), now=NOW)
        stored = await store.load("orders")
        assert stored is not None
        assert stored.epoch == ORDERS.epoch + 2

    async def test_the_gaps_stay(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        await store.record_gap(GAP)
        await reset_position(store, "orders", now=NOW)
        assert list(await store.gaps("orders")) == [GAP]

    async def test_a_dry_run_forgets_nothing(self, store: MemoryCheckpoints) -> None:
        await store.save(ORDERS)
        text = await reset_position(store, "orders", now=NOW, dry_run=True)
        assert text.endswith("Dry run: nothing was written.\n")
        assert await store.load("orders") == ORDERS

    async def test_of_nothing(self, store: MemoryCheckpoints) -> None:
        with pytest.raises(ConfigurationError, match="has no checkpoint"):
            await reset_position(store, "orders", now=NOW)

    async def test_of_a_record_that_cannot_be_read(self) -> None:
        store = Unreadable(order=(1, 1))
        assert "(unreadable) it is broken" in await reset_position(store, "orders", now=NOW)
        (saved,) = store.saved
        assert saved.order == (int(NOW.timestamp()), 1)
        assert saved.is_reset

    async def test_of_one_whose_epoch_has_no_next(self, store: MemoryCheckpoints) -> None:
        await store.save(replace(ORDERS, epoch=2**63 - 1))
        await reset_position(store, "orders", now=NOW)
        assert (await store.list())[0].order == (int(NOW.timestamp()), 1)

    async def test_a_change_meanwhile(self) -> None:
        class Raced(MemoryCheckpoints):
            async def save(self, checkpoint: Checkpoint) -> None:
                raise CheckpointFenced("epoch 9 is stored")

        with pytest.raises(ConfigurationError, match="nothing was reset: epoch 9 is stored"):
            await reset_position(Raced({"orders": ORDERS}), "orders", now=NOW)


class Unreadable(MemoryCheckpoints):
    """A store whose one record has an order and is broken otherwise."""

    def __init__(self, order: tuple[int, int]) -> None:
        document = ORDERS.to_document() | {"epoch": order[0], "sequence": order[1]}
        super().__init__({"orders": Checkpoint.from_document(document, where="")})
        self.saved: list[Checkpoint] = []

    async def load(self, scope: str) -> Checkpoint | None:
        raise CheckpointCorrupt("it is broken")

    async def save(self, checkpoint: Checkpoint) -> None:
        await super().save(checkpoint)
        self.saved.append(checkpoint)


class TestOptions:
    def test_a_token_as_the_server_or_we_print_it(self) -> None:
        assert read_position(token='{"_data": "82671234560000000746"}') == Position(NEW)
        assert read_position(token=NEW.to_json(), after_invalidate=True) == Position(
            NEW, after_invalidate=True
        )
        assert read_position(token_data=" 82671234560000000746\n") == Position(NEW)

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("2023-11-14T22:13:20Z", 1_700_000_000),
            ("2023-11-14T22:13:20.999Z", 1_700_000_000),
            ("2023-11-15T00:13:20+02:00", 1_700_000_000),
            ("2023-11-14 22:13:20+0000", 1_700_000_000),
        ],
    )
    def test_a_time_is_that_of_its_second(self, text: str, seconds: int) -> None:
        assert read_position(at=text) == Position(time=Timestamp(seconds, 1))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({}, "give exactly one of"),
            ({"token": "{}", "at": "2023-11-14T22:13:20Z"}, "give exactly one of"),
            ({"token_data": "82", "token": ""}, "give exactly one of"),
            ({"at": "2023-11-14T22:13:20"}, "--at: '2023-11-14T22:13:20' has no time zone"),
            ({"at": "yesterday"}, "--at: 'yesterday' is not an ISO 8601 time"),
            ({"at": "1969-12-31T23:59:00Z"}, "--at: .* no time that MongoDB can have"),
            ({"at": "2106-02-07T06:28:16Z"}, "--at: .* no time that MongoDB can have"),
            ({"at": "0001-01-01T00:00:00+10:00"}, "--at: .* no time that MongoDB can have"),
            ({"at": "2023-11-14T22:13:20Z", "after_invalidate": True}, "--after-invalidate: needs"),
            ({"token_data": ""}, "--token-data: is not hexadecimal"),
            ({"token_data": "826"}, "--token-data: is not hexadecimal"),
            ({"token_data": "82zz"}, "--token-data: is not hexadecimal"),
            ({"token": "8265"}, "--token: .*Give a document"),
            ({"token": "{"}, "--token: "),
            ({"token": '{"_data": {"$oid": "x"}}'}, "--token: "),
            ({"token": "{}"}, "--token: is an empty document"),
        ],
    )
    def test_what_cannot_be_meant(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            read_position(**options)
