"""What every store of dead letters keeps, refuses and guarantees."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from datetime import timedelta, timezone

import bson
import pytest
from bson import Decimal128, Int64, MinKey, ObjectId, Regex
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.engine.ports import DeadLetterStore
from tailrace.errors import CheckpointFenced
from tailrace.model.dead_letter import DeadLetter
from tailrace.stores import Store
from tests.contract.stores import (
    NOW,
    Backing,
    MemoryBacking,
    SqliteBacking,
    key,
    letter,
)
from tests.scratch import MakeDirectory
from tests.unit.engine.changes import change, ddl


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[DeadLetterStore]:
    async with backing.open() as opened:
        yield opened.dead_letters


async def test_the_last_letter_that_was_discarded_is_known_by_key(store: DeadLetterStore) -> None:
    for number in (1, 2, 3):
        await store.add(letter(number, key=7), 0)
    await store.add(letter(4, key=8), 0)
    await store.resolve(letter(1, key=7), "discarded")
    await store.resolve(letter(2, key=7), "discarded")
    await store.resolve(letter(3, key=7), "replayed")
    await store.resolve(letter(4, key=8), "replayed")
    (found,) = (await store.discarded("orders", letter(1).handler)).items()
    assert (found[0], found[1].id) == (letter(2, key=7).key, letter(2).id)
    assert await store.discarded("orders", "another") == {}


async def test_unresolved_letters_are_counted_by_scope_and_handler(backing: Backing) -> None:
    """From the stored letters: another process adds and resolves, and a restart forgets nothing."""
    async with backing.open() as one, backing.open() as two:
        daemon, console = one.dead_letters, two.dead_letters
        for n in (1, 2, 3):
            await daemon.add(letter(n, key="one"), 1)
        await daemon.add(letter(1, handler="lake"), 1)
        await daemon.add(letter(1, key="one"), 1)  # again: stored once
        await console.add(letter(4, scope="users"), 1)
        counts = {("orders", "audit"): 3, ("orders", "lake"): 1, ("users", "audit"): 1}
        assert await daemon.count() == await console.count() == counts
        assert await console.resolve(letter(2, key="one"), "replayed")
        assert await console.resolve(letter(1, handler="lake"), "discarded")
        counts = {("orders", "audit"): 2, ("users", "audit"): 1}
        assert await daemon.count() == counts
    async with backing.open() as opened:
        assert await opened.dead_letters.count() == counts
        await opened.dead_letters.add(letter(2, key="one"), 1)  # once more, after the others
        assert (await opened.dead_letters.count())["orders", "audit"] == 3


def element(kind: int, value: bytes) -> bytes:
    """An event whose document contains a hand-made element that our codecs do not write."""
    inner = bytes([kind]) + b"x\0" + value
    full = b"\x03fullDocument\0" + (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"
    whole = bson.encode(change(1))[4:-1] + full
    return (len(whole) + 5).to_bytes(4, "little") + whole + b"\0"


def joined(size: int, n: int = 1) -> bytes:
    """An event that no document can hold: the server sent it in fragments."""
    half = {"text": "é" * (size // 4)}
    return bson.encode(change(n, fullDocument=half, fullDocumentBeforeChange=half))


LETTERS = {
    "symbol": letter(raw=element(0x0E, b"\x02\0\0\0s\0")),
    "a name that is there twice": letter(raw=element(0x10, b"\x01\0\0\0\x10x\0\x02\0\0\0")),
    "text that is not UTF-8": letter(raw=element(0x02, b"\x02\0\0\0\xff\0")),
    "no key": letter(raw=bson.encode(ddl(1))),
    "large": letter(raw=bson.encode(change(1, fullDocument={"text": "x" * 5_000_000}))),
    "of 16 MB": letter(raw=bson.encode(change(1, fullDocument={"text": "x" * 16_776_900}))),
    "joined from fragments": letter(raw=joined(20_000_000)),
    "text": letter(error="$set Bücher: 'x' \"y\" $.%\n☃ 💧 \0"),
    "never tried": letter(error="", attempts=0),
    "names": letter(scope="Bücher.1", handler="x-y_z.0"),
    "zone of the clock": letter(at=NOW.astimezone(timezone(timedelta(hours=5)))),
}


@pytest.mark.parametrize("name", LETTERS)
async def test_every_field_comes_back_and_the_event_to_the_byte(
    backing: Backing, name: str
) -> None:
    kept = LETTERS[name]
    async with backing.open() as opened:
        await opened.dead_letters.add(kept, 1)
        assert list(await opened.dead_letters.letters()) == [kept]
    async with backing.open() as opened:
        store = opened.dead_letters
        assert list(await store.letters()) == [kept]
        await store.claim(kept.scope, 1)
        assert list(store.held(kept.scope, kept.handler)) == [kept.key]
        assert await store.holds(kept.scope, kept.handler, kept.key)


KEYS = [
    *(7, Int64(8), 9.5, 2**53 + 1, -0.0, "7", "", True, ObjectId(), NOW, Timestamp(1, 2)),
    *(b"\x07", Binary(b"\0" * 16, 4), {"a": 1, "b": [2]}, Decimal128("7"), float("nan"), None),
    *(DatetimeMS(2**62), Regex("^a"), float("inf"), 1e300, MinKey()),
]


async def test_every_kind_of_key_is_held(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as two:
        daemon, console = one.dead_letters, two.dead_letters
        for number, value in enumerate(KEYS):
            raw = bson.encode(change(number) | {"documentKey": {"_id": value}})
            kept = letter(raw=raw)
            await daemon.add(kept, 1)
            await console.claim("orders", 1)
            for store in (daemon, console):
                assert await store.holds("orders", "audit", kept.key), value
                assert kept.key in store.held("orders", "audit"), value
            assert await console.resolve(kept, "replayed")
            assert not await daemon.holds("orders", "audit", kept.key), value
            assert list(daemon.held("orders", "audit")) == [], value


async def test_letters_are_in_the_order_in_which_they_came(store: DeadLetterStore) -> None:
    """Whatever their events, names and times are."""
    kept = [
        letter(n, key=n % 3, scope=scope, handler=handler, at=NOW - timedelta(seconds=n))
        for n, scope, handler in [
            *((9, "users", "lake"), (1, "orders", "lake"), (5, "orders", "audit")),
            *((2, "users", "audit"), (8, "orders", "audit"), (3, "users", "lake")),
        ]
    ]
    for each in kept:
        await store.add(each, 1)
    assert await store.letters() == kept
    assert await store.letters("orders") == [each for each in kept if each.scope == "orders"]
    audit = [each for each in kept if each.handler == "audit"]
    assert await store.letters(handler="audit") == audit
    assert await store.letters("users", "lake") == [kept[0], kept[5]]
    assert await store.letters("user", "lake") == await store.letters("users", "") == []
    assert await store.letters("orders", is_key={key(2)}.__contains__) == [kept[2], kept[4]]
    assert await store.letters("users", is_key={key(0), key(2)}.__contains__) == [
        *(kept[0], kept[3], kept[5]),
    ]
    assert await store.letters("orders", is_key={key(0)}.__contains__) == []
    assert await store.letters(is_key={key(2)}.__contains__) == [kept[2], kept[3], kept[4]]


async def test_pages_of_letters_go_on_where_the_last_one_ended(store: DeadLetterStore) -> None:
    """Also after those that were resolved meanwhile, and without the events."""
    for n in range(7):
        await store.add(letter(n, key=n % 2, scope="users" if n == 3 else "orders"), 1)
    first = await store.heads("orders", limit=2)
    assert [head.id for head in first] == [letter(0).id, letter(1).id]
    assert await store.read(first[1]) == letter(1, key=1)
    assert await store.resolve(first[1], "discarded")
    assert await store.read(first[1]) is None
    rest = await store.heads("orders", "audit", after=first[1].arrival)
    assert [head.id for head in rest] == [letter(n).id for n in (2, 4, 5, 6)]
    assert await store.heads(after=rest[-1].arrival) == []
    assert [head.id for head in await store.queue(rest[0].queue)] == [
        letter(n).id for n in (0, 2, 4, 6)
    ]
    with pytest.raises(ValueError, match="invalid literal"):
        await store.heads(after="odd")


async def test_the_same_letter_is_stored_once_and_keeps_its_place(backing: Backing) -> None:
    """A process that does not know whether a letter was stored adds it again, with another time."""
    async with backing.open() as first, backing.open() as second:
        one, two = first.dead_letters, second.dead_letters
        await one.add(letter(1), 1)
        await one.add(letter(2), 1)
        again = letter(1, at=NOW + timedelta(hours=1), error="another", attempts=9)
        await one.add(again, 1)
        await two.add(again, 1)
        assert await two.letters() == [letter(1), letter(2)]
        assert await two.resolve(again, "discarded")
        assert await one.letters() == [letter(2)]


async def test_a_key_is_held_until_its_last_letter_is_resolved_once(backing: Backing) -> None:
    async with backing.open() as first, backing.open() as second:
        one, two = first.dead_letters, second.dead_letters
        for n in (1, 2):
            await one.add(letter(n, key=7), 1)
        assert list(one.held("orders", "audit")) == [key(7)]
        assert await two.resolve(letter(1, key=7), "replayed")
        assert not await two.resolve(letter(1, key=7), "replayed")
        assert not await one.resolve(letter(1, key=7), "discarded")
        assert await one.holds("orders", "audit", key(7))
        assert await two.resolve(letter(2, key=7), "discarded")
        assert not await one.holds("orders", "audit", key(7))
        assert list(one.held("orders", "audit")) == []


async def test_a_repeated_dead_letter_goes_after_all_others(backing: Backing) -> None:
    """The event came again from an older checkpoint, after its letter had been resolved."""
    async with backing.open() as first, backing.open() as second:
        one, two = first.dead_letters, second.dead_letters
        await one.add(letter(1, key=7), 1)
        await one.add(letter(2, key=7), 1)
        assert await one.resolve(letter(1, key=7), "replayed")
        again = letter(1, key=7, error="", attempts=0)
        await one.add(again, 1)
        for store in (one, two):
            assert await store.letters() == [letter(2, key=7), again]
        assert await two.resolve(again, "replayed")
        assert await two.holds("orders", "audit", key(7))


async def test_a_cancelled_add_leaves_a_sound_store(backing: Backing) -> None:
    """At any moment of the cancel: stored or not, never held without a letter; the store works."""
    async with backing.open() as opened:
        store = opened.dead_letters
        for delay in range(1, 25):
            adding = asyncio.create_task(store.add(letter(delay), 1))
            for _ in range(delay):
                await asyncio.sleep(0)
            adding.cancel()
            await asyncio.gather(adding, return_exceptions=True)
            if letter(delay) in await store.letters():
                assert key(delay) in store.held("orders", "audit")
                assert await store.holds("orders", "audit", key(delay))
            await store.add(letter(delay), 1)
        assert [each.id for each in await store.letters()] == [letter(n).id for n in range(1, 25)]


async def claimed(store: Store, epoch: int, scope: str = "orders") -> None:
    """As an owner begins: the checkpoint first."""
    await store.checkpoints.claim(scope, epoch)
    await store.dead_letters.claim(scope, epoch)


async def test_a_letter_of_an_earlier_owner_is_refused(backing: Backing) -> None:
    async with backing.open() as old, backing.open() as new:
        await claimed(old, 1)
        await claimed(old, 1, "users")
        await old.dead_letters.add(letter(1), 1)
        await claimed(new, 2)
        assert list(new.dead_letters.held("orders", "audit")) == [key(1)]
        for _ in range(2):  # it stays refused
            with pytest.raises(CheckpointFenced, match="scope 'orders': epoch 2 has claimed"):
                await old.dead_letters.add(letter(2), 1)
        with pytest.raises(CheckpointFenced):
            await old.dead_letters.claim("orders", 1)
        await new.dead_letters.add(letter(3), 2)
        await old.dead_letters.add(letter(4, scope="users"), 1)
        kept = [letter(1), letter(3), letter(4, scope="users")]
        assert await new.dead_letters.letters() == kept


async def test_the_owner_of_a_scope_claims_it_again(backing: Backing) -> None:
    """Each run of a scope begins so, with the epoch of its process."""
    async with backing.open() as store:
        await claimed(store, 1)
        for n in range(3):
            await store.dead_letters.add(letter(n), 1)
            await store.dead_letters.claim("orders", 1)
        assert await store.dead_letters.letters() == [letter(n) for n in range(3)]


STEPS = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from(["add", "add", "resolve", "claim"]),
    st.integers(0, 5),
)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=30))
def test_two_processes_agree_with_a_model(
    kind: str, session_directory: MakeDirectory, steps: list[tuple[int, str, int]]
) -> None:
    """In any interleaving. Events 0 and 3, 1 and 4, 2 and 5 have the same key."""

    async def scenario() -> None:
        path = session_directory("model") / "tailrace.db"
        backing: Backing = MemoryBacking() if kind == "memory" else SqliteBacking(path)
        model: dict[str, DeadLetter] = {}
        async with backing.open() as first, backing.open() as second:
            stores = first.dead_letters, second.dead_letters
            for who, what, n in steps:
                store, one = stores[who], letter(n, key=n % 3)
                if what == "add":
                    await store.add(one, 1)
                    model.setdefault(one.id, one)
                elif what == "resolve":
                    assert await store.resolve(one, "replayed") == (one.id in model)
                    model.pop(one.id, None)
                held = {each.key for each in model.values()}
                assert await store.holds("orders", "audit", one.key) == (one.key in held)
                assert (one.key in store.held("orders", "audit")) == (one.key in held)
                if what == "claim":
                    await store.claim("orders", 1)
                    assert set[Hashable](store.held("orders", "audit")) == held
            for store in stores:
                assert list(await store.letters()) == list(model.values())
                assert sum((await store.count()).values()) == len(model)

    asyncio.run(scenario())
