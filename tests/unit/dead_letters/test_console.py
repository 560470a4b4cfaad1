"""What the operator's commands on dead letters print, discard and refuse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import bson
import pytest
from bson import ObjectId

from tailrace.dead_letters.console import discard_letters, list_letters, show_letter
from tailrace.dead_letters.memory import MemoryDeadLetters
from tailrace.errors import ConfigurationError
from tests.contract.dead_letter_stores import AT, letter
from tests.unit.engine.changes import change, ddl

NOW = AT + timedelta(hours=3, minutes=4)
FIRST = letter(1, key=7, error="ValueError: no such\n  order")
BEHIND = letter(2, key=7, error="", attempts=0, at=AT + timedelta(hours=3))
OTHER = letter(1, key=7, scope="users", handler="lake", attempts=1)
LISTED = """\
LETTER        SCOPE   HANDLER  OPERATION  NAMESPACE    KEY  ATTEMPTS  AT                    AGE    ERROR
{0}  orders  audit    insert     shop.orders  7    5         2026-11-30T12:00:00Z  3h 4m  ValueError: no such order
{1}  orders  audit    insert     shop.orders  7    0         2026-11-30T15:00:00Z  4m 0s  (behind {0})
{0}  users   lake     insert     shop.orders  7    1         2026-11-30T12:00:00Z  3h 4m  ValueError: no such order

3 dead letters, 1 of them behind another of the same document.
"""  # noqa: E501 - a line of the table


@pytest.fixture
async def store() -> AsyncIterator[MemoryDeadLetters]:
    async with MemoryDeadLetters.open() as store:
        for each in (FIRST, BEHIND, OTHER):
            await store.add(each)
        yield store


class TestList:
    async def test_is_a_table_in_the_order_in_which_they_came(
        self, store: MemoryDeadLetters
    ) -> None:
        assert await list_letters(store, now=NOW) == LISTED.format(FIRST.id, BEHIND.id)

    async def test_may_be_narrowed_down(self, store: MemoryDeadLetters) -> None:
        text = await list_letters(store, scope="users", now=NOW)
        assert text.endswith("\n1 dead letter.\n")
        assert text == await list_letters(store, handler="lake", now=NOW)
        assert await list_letters(store, scope="users", handler="audit", now=NOW) == (
            "No dead letters.\n"
        )

    async def test_of_nothing_says_so(self) -> None:
        async with MemoryDeadLetters.open() as store:
            assert await list_letters(store, now=NOW) == "No dead letters.\n"

    async def test_keeps_others_text_from_the_terminal(self) -> None:
        raw = bson.encode(
            change(1, "\x1b[2J\x9b31m" + "k" * 100, ns={"db": "a\tb", "coll": "\x07c"})
        )
        async with MemoryDeadLetters.open() as store:
            await store.add(letter(raw=raw, error="\x1b[31m red\r\n" + "e" * 100))
            text = await list_letters(store, now=NOW)
            whole = await show_letter(store, letter(1).id, now=NOW)
        for each in (text, whole):
            assert all(c.isprintable() or c == "\n" for c in each)
        row = text.splitlines()[1]
        assert "a b.\\u0007c" in row
        assert row.endswith("e…")
        assert "k" * 100 in whole

    @pytest.mark.parametrize(
        ("raw", "shown"),
        [
            (bson.encode(ddl(1)), " - "),
            (bson.encode(change(1, "é")), '"é"'),
            (bson.encode(change(1, ObjectId("0" * 24))), '{"$oid": "0000'),
            (bson.encode({"_id": {"_data": "1"}}), "  -  "),
        ],
    )
    async def test_shows_any_key(self, raw: bytes, shown: str) -> None:
        async with MemoryDeadLetters.open() as store:
            await store.add(letter(raw=raw))
            assert shown in await list_letters(store, now=NOW)


class TestShow:
    async def test_tells_everything(self, store: MemoryDeadLetters) -> None:
        text = await show_letter(store, BEHIND.id, now=NOW)
        head, event = text.split("  event:\n")
        assert head == (
            f"  letter:       {BEHIND.id}\n"
            "  scope:        orders\n"
            "  handler:      audit\n"
            "  operation:    insert\n"
            "  namespace:    shop.orders\n"
            "  key:          7\n"
            "  attempts:     0\n"
            "  at:           2026-11-30T15:00:00Z (4m 0s ago)\n"
            f"  behind:       {FIRST.id}\n"
            "  error:        -\n"
        )
        assert json.loads(event)["documentKey"] == {"_id": {"$numberInt": "7"}}
        assert '\n  "operationType": "insert"' in event

    async def test_of_several_handlers_is_one_after_another(self, store: MemoryDeadLetters) -> None:
        text = await show_letter(store, FIRST.id, now=NOW)
        assert text.count("  event:\n") == 2
        one = await show_letter(store, FIRST.id, handler="lake", now=NOW)
        assert one.count("  event:\n") == 1
        assert "users" in one

    async def test_of_an_unknown_letter_is_refused(self, store: MemoryDeadLetters) -> None:
        with pytest.raises(ConfigurationError, match="letter '5f3a': is not waiting"):
            await show_letter(store, "5f3a", now=NOW)


class TestDiscard:
    async def test_of_ids_takes_them_from_all_handlers(self, store: MemoryDeadLetters) -> None:
        text = await discard_letters(store, ids=[FIRST.id])
        assert text == (
            f"{FIRST.id}  orders  audit  7\n{FIRST.id}  users  lake  7\nDiscarded 2 dead letters.\n"
        )
        assert await store.letters() == [BEHIND]

    async def test_may_be_narrowed_down(self, store: MemoryDeadLetters) -> None:
        assert "Discarded 1 dead letter.\n" in await discard_letters(
            store, ids=[FIRST.id], handler="audit"
        )
        assert await store.letters() == [BEHIND, OTHER]
        await discard_letters(store, scope="orders")
        assert await store.letters() == [OTHER]

    async def test_that_is_tried_changes_nothing(self, store: MemoryDeadLetters) -> None:
        text = await discard_letters(store, scope="orders", dry_run=True)
        assert text.endswith("Dry run: nothing was discarded.\n")
        assert text.count("\n") == 3
        assert len(await store.letters()) == 3

    async def test_of_everything_by_an_oversight_is_refused(self, store: MemoryDeadLetters) -> None:
        with pytest.raises(ConfigurationError, match="say which letters"):
            await discard_letters(store)

    async def test_of_unknown_letters_is_refused_at_once(self, store: MemoryDeadLetters) -> None:
        with pytest.raises(ConfigurationError) as caught:
            await discard_letters(store, ids=[FIRST.id, "one", "two"])
        assert [problem.path for problem in caught.value.problems] == [
            "letter 'one'",
            "letter 'two'",
        ]
        assert len(await store.letters()) == 3

    async def test_of_nothing_says_so(self, store: MemoryDeadLetters) -> None:
        assert await discard_letters(store, scope="nobody") == "No dead letters.\n"
