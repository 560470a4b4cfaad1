"""What every store of dead letters keeps, refuses and promises, whatever it writes to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Hashable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.dead_letters.held import Identity
from tailrace.dead_letters.jsonl import JsonlDeadLetters
from tailrace.dead_letters.memory import MemoryDeadLetters
from tailrace.event.dead_letter import DeadLetter
from tests.contract.dead_letter_stores import (
    AT,
    Backing,
    JsonlBacking,
    MemoryBacking,
    MongoBacking,
    Store,
    key,
    letter,
)
from tests.unit.engine.changes import change, ddl


@pytest.fixture(params=["memory", "jsonl", pytest.param("mongodb", marks=pytest.mark.integration)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    if request.param == "memory":
        return MemoryBacking()
    if request.param == "jsonl":
        return JsonlBacking(tmp_path / "deep" / "letters.jsonl")
    return MongoBacking(request.getfixturevalue("server"), f"d{uuid.uuid4().hex}")


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[Store]:
    async with backing.open() as store:
        yield store


async def test_nothing_is_stored_at_first(store: Store) -> None:
    assert await store.letters() == []
    assert list(store.held("orders", "audit")) == []
    assert not await store.holds("orders", "audit", key(1))
    await store.refresh()
    assert await store.count() == {}
    assert not await store.resolve(letter(), "replayed")


async def test_unresolved_letters_are_counted_by_scope_and_handler(backing: Backing) -> None:
    """By what is stored: another process adds and resolves, and a restart forgets nothing."""
    async with backing.open() as daemon, backing.open() as console:
        for n in (1, 2, 3):
            await daemon.add(letter(n, key="one"))
        await daemon.add(letter(1, handler="lake"))
        await daemon.add(letter(1, key="one"))  # again: stored once
        await console.add(letter(4, scope="users"))
        counts = {("orders", "audit"): 3, ("orders", "lake"): 1, ("users", "audit"): 1}
        assert await daemon.count() == await console.count() == counts
        assert await console.resolve(letter(2, key="one"), "replayed")
        assert await console.resolve(letter(1, handler="lake"), "discarded")
        counts = {("orders", "audit"): 2, ("users", "audit"): 1}
        assert await daemon.count() == counts
    async with backing.open() as next_process:
        assert await next_process.count() == counts
        await next_process.add(letter(2, key="one"))  # once more, behind the others
        assert (await next_process.count())["orders", "audit"] == 3


def document(**fields: Any) -> bytes:
    return bson.encode(change(1, fullDocument=fields))


def element(kind: int, value: bytes, *, first: bool = False) -> bytes:
    """An event whose document holds, by hand, an element that no codec of ours writes."""
    inner = bytes([kind]) + b"x\0" + value
    full = b"\x03fullDocument\0" + (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
    rest = bson.encode(change(1))[4:-1]
    whole = full + rest if first else rest + full
    return (len(whole) + 5).to_bytes(4, "little") + whole + b"\0"


TWICE = b"\x01\0\0\0" + b"\x10x\0\x02\0\0\0"
DEEP: list[Any] = []
for _ in range(80):
    DEEP = [DEEP]
EVENTS = {
    "plain": document(text='a\nb\u2028 é 💧 "\\ \0', n=1, long=Int64(1), double=1.0, tiny=5e-324),
    "numbers": document(infinite=[float("inf"), float("-inf")], nan=float("nan"), zero=-0.0),
    "decimal": document(d=[Decimal128("1.10"), Decimal128("NaN"), Decimal128("-0E+3")]),
    "dates": document(d=[AT, DatetimeMS(-(2**62)), DatetimeMS(2**62)]),
    "binary": document(b=[b"\xff", Binary(b"\0" * 16, 4), Binary(b"x", 128), Binary(b"y", 2)]),
    "code": document(c=[Code("f"), Code("g", {"a": 1})], r=Regex("^a", "im")),
    "ends": document(e=[MinKey(), MaxKey(), None, True, Timestamp(2**32 - 1, 2**32 - 1)]),
    "identities": document(i=[ObjectId(), DBRef("c", ObjectId(), "d", x=1)]),
    "a document like a value": document(a={"$oid": "0" * 24}, b={"$oid": 5}, c={"$date": "x"}),
    "a document like a reference": document(a={"$id": 1, "$ref": "c"}),
    "symbol": element(0x0E, b"\x02\0\0\0s\0"),
    "undefined": element(0x06, b""),
    "pointer": element(0x0C, b"\x02\0\0\0c\0" + b"\x01" * 12),
    "not a number with a payload": element(0x01, b"\x01\0\0\0\0\0\xf8\x7f"),
    "a name that is there twice": element(0x10, TWICE),
    "text that is not UTF-8": element(0x02, b"\x02\0\0\0\xff\0"),
    "deep": document(deep=DEEP),
    "a token that is not in front": element(0x0A, b"", first=True),
    "no key": bson.encode(ddl(1)),
    "large": document(text="x" * 5_000_000),
}


@pytest.mark.parametrize("name", EVENTS)
async def test_the_event_comes_back_to_the_byte(backing: Backing, name: str) -> None:
    kept = letter(raw=EVENTS[name])
    async with backing.open() as store:
        await store.add(kept)
        assert await store.letters() == [kept]
    async with backing.open() as store:
        assert await store.letters() == [kept]
        assert list(store.held("orders", "audit")) == [kept.key]
        assert await store.holds("orders", "audit", kept.key)


VARIANTS = {
    "text": letter(error="Bücher: 'x' \"y\" $.%\n☃ 💧 \0"),
    "never tried": letter(error="", attempts=0),
    "names": letter(scope="Bücher.1", handler="x-y_z.0"),
    "zone of the clock": letter(at=AT.astimezone(timezone(timedelta(hours=5)))),
    "whole second": letter(at=datetime(2026, 1, 1, tzinfo=UTC)),
}


@pytest.mark.parametrize("name", VARIANTS)
async def test_every_field_comes_back(store: Store, name: str) -> None:
    await store.add(VARIANTS[name])
    assert await store.letters() == [VARIANTS[name]]


async def test_an_error_that_is_no_text_is_kept_as_text(backing: Backing) -> None:
    async with backing.open() as store:
        await store.add(letter(error="half \ud800"))
        (kept,) = await store.letters()
    encodes_nothing = isinstance(backing, MemoryBacking)
    assert kept.error == ("half \ud800" if encodes_nothing else "half \\ud800")


KEYS = [
    *(
        7,
        Int64(8),
        9.5,
        2**53 + 1,
        -0.0,
        "7",
        "",
        True,
        ObjectId(b"an-object-id"),
        AT,
        Timestamp(1, 2),
    ),
    *(b"\x07", Binary(b"\0" * 16, 4), {"a": 1, "b": [2]}, Decimal128("7"), float("nan"), None),
    *(DatetimeMS(2**62), Regex("^a"), float("inf"), 1e300, MinKey()),
]


@pytest.mark.parametrize("value", KEYS, ids=repr)
async def test_every_kind_of_key_is_held(backing: Backing, value: Any) -> None:
    async with backing.open() as one, backing.open() as two:
        await one.add(letter(1, {"other": 1}))
        raw = bson.encode(change(2) | {"documentKey": {"_id": value}})
        kept = letter(raw=raw)
        await one.add(kept)
        for store in (one, two):
            assert await store.holds("orders", "audit", kept.key)
            assert kept.key in store.held("orders", "audit")
        async with backing.open() as three:
            assert kept.key in three.held("orders", "audit")
        assert await two.resolve(kept, "replayed")
        assert not await one.holds("orders", "audit", kept.key)
        assert list(one.held("orders", "audit")) == [key({"other": 1})]


async def test_numbers_that_are_equal_are_one_key(store: Store) -> None:
    """The server knows 1, 1.0 and NumberLong(1) as one _id."""
    await store.add(letter(1, 1))
    for value in (1, 1.0, Int64(1)):
        assert await store.holds("orders", "audit", key(value))
    assert not await store.holds("orders", "audit", key("1"))
    assert not await store.holds("orders", "audit", key(2))


async def test_letters_are_in_the_order_in_which_they_came(store: Store) -> None:
    """Whatever their events, names and times say."""
    kept = [
        letter(n, key=n % 3, scope=scope, handler=handler, at=AT - timedelta(seconds=n))
        for n, scope, handler in [
            *((9, "users", "lake"), (1, "orders", "lake"), (5, "orders", "audit")),
            *((2, "users", "audit"), (8, "orders", "audit"), (3, "users", "lake")),
        ]
    ]
    for each in kept:
        await store.add(each)
    assert await store.letters() == kept
    assert await store.letters("orders") == [each for each in kept if each.scope == "orders"]
    audit = [each for each in kept if each.handler == "audit"]
    assert await store.letters(handler="audit") == audit
    assert await store.letters("users", "lake") == [kept[0], kept[5]]
    assert await store.letters("user", "lake") == await store.letters("users", "") == []


async def test_names_that_begin_alike_are_others(store: Store) -> None:
    names = ["orders", "order", "orders-2", "orders.eu", "Orders", "0"]
    for name in names:
        await store.add(letter(scope=name))
    for name in names:
        assert await store.letters(name) == [letter(scope=name)]
        assert list(store.held(name, "audit")) == [key(1)]


async def test_the_same_letter_is_stored_once_and_keeps_its_place(backing: Backing) -> None:
    """Whoever does not know whether it was stored adds it again, with another time."""
    async with backing.open() as one, backing.open() as two:
        await one.add(letter(1))
        await one.add(letter(2))
        again = letter(1, at=AT + timedelta(hours=1), error="another", attempts=9)
        await one.add(again)
        await two.add(again)
        assert await two.letters() == [letter(1), letter(2)]
        assert await two.resolve(again, "discarded")
        assert await one.letters() == [letter(2)]


async def test_the_same_event_is_a_letter_of_each_handler_and_scope(store: Store) -> None:
    kept = [letter(), letter(handler="lake"), letter(scope="users")]
    for each in kept:
        await store.add(each)
    assert await store.resolve(kept[0], "replayed")
    assert await store.letters() == kept[1:]
    assert not await store.holds("orders", "audit", key(1))
    assert await store.holds("orders", "lake", key(1))
    assert await store.holds("users", "audit", key(1))


async def test_a_key_is_held_until_its_last_letter_is_resolved(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        for n in (1, 2):
            await one.add(letter(n, key=7))
        assert list(one.held("orders", "audit")) == [key(7)]
        assert await two.resolve(letter(1, key=7), "replayed")
        assert await one.holds("orders", "audit", key(7))
        assert await two.resolve(letter(2, key=7), "discarded")
        assert not await one.holds("orders", "audit", key(7))
        assert list(one.held("orders", "audit")) == []


async def test_a_letter_is_resolved_once(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        await one.add(letter())
        assert await one.resolve(letter(), "replayed")
        assert not await one.resolve(letter(), "replayed")
        assert not await two.resolve(letter(), "discarded")
    async with backing.open() as store:
        assert await store.letters() == []
        assert list(store.held("orders", "audit")) == []


async def test_an_event_that_is_set_aside_again_goes_behind_all_others(backing: Backing) -> None:
    """It came again from an older checkpoint, after its letter had been resolved."""
    async with backing.open() as store:
        await store.add(letter(1, key=7))
        await store.add(letter(2, key=7))
        assert await store.resolve(letter(1, key=7), "replayed")
        again = letter(1, key=7, error="", attempts=0)
        await store.add(again)
        assert await store.letters() == [letter(2, key=7), again]
    async with backing.open() as store:
        assert await store.letters() == [letter(2, key=7), again]
        assert await store.resolve(again, "replayed")
        assert await store.holds("orders", "audit", key(7))


async def test_what_another_has_added_is_known_after_a_refresh(backing: Backing) -> None:
    """A replica that takes a scope over was opened before its owner set anything aside."""
    async with backing.open() as one, backing.open() as two:
        for n in range(3):
            await one.add(letter(n))
        await two.refresh()
        assert set(two.held("orders", "audit")) == {key(n) for n in range(3)}
        await one.resolve(letter(1), "replayed")
        await two.refresh()
        assert set(two.held("orders", "audit")) == {key(0), key(2)}


async def test_many_are_all_there(backing: Backing) -> None:
    async with backing.open() as store:
        async with asyncio.TaskGroup() as group:
            for n in range(205):
                group.create_task(store.add(letter(n)))
        assert await store.letters() == [letter(n) for n in range(205)]
    async with backing.open() as store:
        assert set(store.held("orders", "audit")) == {key(n) for n in range(205)}


async def test_two_may_add_at_once(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:

        async def add(store: Store, first: int) -> None:
            for n in range(first, first + 20):
                await store.add(letter(n))

        await asyncio.gather(add(one, 0), add(two, 100), add(two, 200))
        found = [each.event.document_key["_id"] for each in await one.letters()]
        assert sorted(found) == [*range(20), *range(100, 120), *range(200, 220)]
        for first in (0, 100, 200):
            mine = [n for n in found if n // 100 == first // 100]
            assert mine == sorted(mine)


async def test_a_cancelled_add_leaves_a_sound_store(backing: Backing) -> None:
    """Whatever the moment of the cancel: stored or not, never held by nobody, and it goes on."""
    async with backing.open() as store:
        for delay in range(1, 25):
            adding = asyncio.create_task(store.add(letter(delay)))
            for _ in range(delay):
                await asyncio.sleep(0)
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            there = letter(delay) in await store.letters()
            assert not there or key(delay) in store.held("orders", "audit")
            assert await store.holds("orders", "audit", key(delay)) == there
            await store.add(letter(delay))
        assert [each.id for each in await store.letters()] == [letter(n).id for n in range(1, 25)]


STEPS = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from(["add", "add", "resolve", "reopen", "holds", "refresh"]),
    st.integers(0, 5),
)


@pytest.mark.parametrize("kind", ["memory", "jsonl"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=30))
def test_two_stores_agree_with_a_model(
    kind: str, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str, int]]
) -> None:
    """In any interleaving; events 0 and 3, 1 and 4, 2 and 5 have the same key."""

    async def scenario() -> None:
        letters: dict[Identity, DeadLetter] = {}
        path = tmp_path_factory.mktemp("model") / "letters.jsonl"

        def opened():
            return (
                MemoryDeadLetters.open(letters) if kind == "memory" else JsonlDeadLetters.open(path)
            )

        model: dict[str, DeadLetter] = {}
        contexts = [opened(), opened()]
        stores = [await each.__aenter__() for each in contexts]
        for who, what, n in steps:
            store, one = stores[who], letter(n, key=n % 3)
            if what == "add":
                await store.add(one)
                model.setdefault(one.id, one)
            elif what == "resolve":
                assert await store.resolve(one, "replayed") == (one.id in model)
                model.pop(one.id, None)
            elif what == "reopen":
                await contexts[who].__aexit__(None, None, None)
                contexts[who] = opened()
                stores[who] = await contexts[who].__aenter__()
            elif what == "refresh":
                await store.refresh()
            held = {each.key for each in model.values()}
            assert await store.holds("orders", "audit", one.key) == (one.key in held)
            assert set[Hashable](store.held("orders", "audit")) == held
        for store in stores:
            assert await store.letters() == list(model.values())
            assert sum((await store.count()).values()) == len(model)
        for context in contexts:
            await context.__aexit__(None, None, None)

    asyncio.run(scenario())
