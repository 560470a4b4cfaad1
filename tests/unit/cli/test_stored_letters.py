"""What the operator's commands on dead letters print."""

import json
from dataclasses import replace
from datetime import timedelta

import bson
import pytest
from bson import ObjectId, json_util

from tailrace.cli.dead_letter_text import details, row, table
from tailrace.cli.stored_letters import show_letter
from tailrace.control.letter_choice import LetterChoice
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stores.records import letter_line
from tests.contract.stores import NOW as AT
from tests.contract.stores import letter
from tests.unit.engine.changes import change, ddl

NOW = AT + timedelta(hours=3, minutes=4)
FIRST = letter(1, key=7, error="ValueError: no such\n  order")
BEHIND = letter(2, key=7, error="", attempts=0, at=AT + timedelta(hours=3))
OTHER = letter(1, key=7, scope="users", handler="lake", attempts=1)
LISTED = """\
LETTER        SCOPE   HANDLER  OPERATION  NAMESPACE    KEY  ATTEMPTS  AT                    AGE    ERROR
{0}  orders  audit    insert     shop.orders  7    5         2026-11-30T12:00:00Z  3h 4m  ValueError: no such order
{1}  orders  audit    insert     shop.orders  7    0         2026-11-30T15:00:00Z  4m 0s  (waits for {0})
{0}  users   lake     insert     shop.orders  7    1         2026-11-30T12:00:00Z  3h 4m  ValueError: no such order

3 dead letters, 1 of them wait for another of the same document.
"""  # noqa: E501 - a line of the table


ALL = [FIRST, BEHIND, OTHER]
DAMAGED = replace(FIRST, raw=b"no BSON")


def test_dead_letters_are_listed_as_a_table_in_the_order_in_which_they_came() -> None:
    assert table([row(each, NOW) for each in ALL]) == LISTED.format(FIRST.id, BEHIND.id)


def test_control_characters_of_keys_and_errors_do_not_reach_the_terminal() -> None:
    raw = bson.encode(change(1, "\x1b[2J\x9b31m" + "k" * 100, ns={"db": "a\tb", "coll": "\x07c"}))
    odd = letter(raw=raw, error="\x1b[31m red\r\n" + "e" * 100)
    text, whole = table([row(odd, NOW)]), details(odd, odd.id, NOW)
    for each in (text, whole):
        assert all(c.isprintable() or c == "\n" for c in each)
    line = text.splitlines()[1]
    assert "a b.\\u0007c" in line
    assert line.endswith("e…")
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
def test_the_key_of_any_event_is_listed(raw: bytes, shown: str) -> None:
    assert shown in table([row(letter(raw=raw), NOW)])


def test_one_dead_letter_is_shown_with_every_field_and_its_event() -> None:
    text = details(BEHIND, FIRST.id, NOW)
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
        f"  waits for:    {FIRST.id}\n"
        "  error:        -\n"
    )
    assert json.loads(event)["documentKey"] == {"_id": {"$numberInt": "7"}}
    assert '\n  "operationType": "insert"' in event


async def test_an_event_that_several_handlers_refused_is_shown_for_each_of_them() -> None:
    store = MemoryDeadLetters(*ALL)
    text = await show_letter(store, LetterChoice(ids=frozenset({FIRST.id})), now=NOW)
    assert text.count("  event:\n") == 2
    chosen = LetterChoice("users", ids=frozenset({FIRST.id}))
    assert (await show_letter(store, chosen, now=NOW)).count("  event:\n") == 1
    behind = await show_letter(store, LetterChoice(ids=frozenset({BEHIND.id})), now=NOW)
    assert f"waits for:    {FIRST.id}\n" in behind


def test_a_letter_whose_event_is_damaged_in_the_store_is_listed_and_shown() -> None:
    assert "(unreadable)" in table([row(DAMAGED, NOW)])
    text = details(DAMAGED, DAMAGED.id, NOW)
    assert "(unreadable: " in text
    assert b"no BSON".hex() in text
    assert json.loads(letter_line(DAMAGED))["raw"] == b"no BSON".hex()


def test_an_exported_line_is_the_letter_as_extended_json() -> None:
    line = letter_line(FIRST)
    assert "\n" not in line
    exported = json.loads(line)
    assert json_util.loads(json.dumps(exported.pop("event"))) == bson.decode(FIRST.raw)
    assert exported == {
        "scope": "orders",
        "handler": "audit",
        "letter": FIRST.id,
        "error": "ValueError: no such\n  order",
        "attempts": 5,
        "at": "2026-11-30T12:00:00.123456+00:00",
    }
