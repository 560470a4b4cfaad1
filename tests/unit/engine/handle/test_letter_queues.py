"""The order in which dead letters are replayed, and what happens to those that fail again."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engine.handle.letter_queues import Replayed, replay_letters
from tailrace.engine.ports import Commit, Handler
from tailrace.errors import LeaseLost
from tailrace.event import ChangeEvent
from tailrace.model.dead_letter import DeadLetter, LetterHead
from tailrace.stores.memory import MemoryDeadLetters
from tests.contract.stores import letter
from tests.handlers import handler
from tests.unit.engine.changes import delivery_to, number
from tests.unit.engine.harms import Harm, raises_keyboard_interrupt, task


class Destination:
    """Records the numbers of the events that it has handled; refuses some."""

    def __init__(self, *refused: int) -> None:
        self.handled: list[int] = []
        self.refused = set(refused)
        self.then: Callable[[int], Awaitable[Any]] | None = None

    async def on_event(self, event: ChangeEvent) -> None:
        if number(event) in self.refused:
            raise ValueError("still broken")
        self.handled.append(number(event))
        if self.then is not None:
            await self.then(number(event))

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        (event,) = events
        await self.on_event(event)

    def handler(self) -> Handler:
        return handler("audit", on_event=self.on_event)


async def filled(*letters: DeadLetter) -> MemoryDeadLetters:
    store = MemoryDeadLetters()
    for each in letters:
        await store.add(each, 1)
    return store


async def replayed(
    store: MemoryDeadLetters,
    to: Handler,
    lines: list[str] | None = None,
    require: Callable[[], None] = lambda: None,
) -> Replayed:
    """The result of a replay of all letters; ``lines``: one for each."""
    lines = [] if lines is None else lines

    def report(letter: DeadLetter | LetterHead, what: str) -> None:
        lines.append(f"{letter.id} {what}")

    again = delivery_to(to).again
    return await replay_letters(store, await store.heads(), again, report, require, lambda: True)


async def test_letters_are_handled_in_order_and_resolved() -> None:
    store, destination = await filled(*(letter(n, key=7) for n in range(4))), Destination()
    lines: list[str] = []
    result = await replayed(store, destination.handler(), lines=lines)
    assert result == Replayed(4, 0, 0)
    assert destination.handled == [0, 1, 2, 3]
    assert await store.letters() == []
    assert lines == [f"{letter(n).id} replayed" for n in range(4)]


async def test_a_handler_that_commits_does_so_after_each_letter() -> None:
    store, destination, lines = await filled(letter(1), letter(2)), Destination(), list[str]()
    committed: list[int] = []

    async def commit(identity: object) -> None:
        committed.append(len(destination.handled))

    late = handler("audit", on_events=destination.on_events, commit=Commit(commit, 10, 10, 10))
    assert await replayed(store, late, lines=lines) == Replayed(2, 0, 0)
    assert committed == [1, 2]
    assert await store.letters() == []


async def work() -> None:
    """A coroutine that a handler forgets to await."""


async def forgets() -> Any:
    return work()


async def leaves() -> None:
    raise SystemExit(0)


async def cancels_itself() -> None:
    task().cancel()
    await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (forgets, "nobody awaited"),
        (leaves, "SystemExit: 0"),
        (raises_keyboard_interrupt, "KeyboardInterrupt"),
        (cancels_itself, "the call was cancelled, and not by this service"),
    ],
)
async def test_a_handler_that_awaits_nothing_or_leaves_has_failed(
    odd: Harm, words: str, batches: bool
) -> None:
    store, lines = await filled(letter(1)), list[str]()
    odd_handler = handler("audit", **{"on_events" if batches else "on_event": lambda _: odd()})
    assert await replayed(store, odd_handler, lines=lines) == Replayed(0, 1, 1)
    assert words in lines[0]


async def test_a_failed_letter_stays_and_so_do_later_ones() -> None:
    letters = [letter(1, "a"), letter(2, "b"), letter(3, "a"), letter(4, "b"), letter(5, "a")]
    store, destination = await filled(*letters), Destination(3)
    lines: list[str] = []
    result = await replayed(store, destination.handler(), lines=lines)
    assert result == Replayed(3, 1, 2)
    assert sorted(destination.handled) == [1, 2, 4]
    assert await store.letters() == [letters[2], letters[4]]
    assert f"{letters[2].id} failed: ValueError: still broken" in lines


async def test_an_event_that_is_damaged_in_the_store_stays() -> None:
    """It cannot be handed over; letters after it wait, as after any failure."""
    damaged, lines = replace(letter(1, 7), raw=b"no BSON"), list[str]()
    store, destination = await filled(damaged, letter(2, 7), letter(3, 8)), Destination()
    assert await replayed(store, destination.handler(), lines=lines) == Replayed(1, 1, 2)
    assert "cannot be read" in lines[0]
    assert destination.handled == [3]


@pytest.mark.parametrize("asked", range(1, 5))
async def test_without_its_lease_it_hands_over_and_resolves_nothing_more(asked: int) -> None:
    """It checks the lease before it hands over each letter, and again before it resolves it."""
    letters = [letter(n, key=7) for n in range(3)]
    store, destination, times = await filled(*letters), Destination(), count(1)

    def require() -> None:
        if next(times) >= asked:
            raise LeaseLost("another may replay")

    with pytest.raises(LeaseLost):
        await replayed(store, destination.handler(), require=require)
    assert destination.handled == list(range(asked // 2))
    assert await store.letters() == letters[(asked - 1) // 2 :]


@given(seed=st.integers(0, 10_000), refused=st.sets(st.integers(0, 11)))
async def test_letters_of_each_key_are_handled_in_order_up_to_the_first_that_fails(
    seed: int, refused: set[int]
) -> None:
    numbers = list(range(12))
    random.Random(seed).shuffle(numbers)
    store = await filled(*(letter(n, key=n % 3) for n in numbers))
    destination = Destination(*refused)
    result = await replayed(store, destination.handler())
    left = 0
    for key in range(3):
        mine = [n for n in range(12) if n % 3 == key]
        failing = min((n for n in mine if n in refused), default=12)
        handled = [n for n in destination.handled if n % 3 == key]
        assert handled == [n for n in mine if n < failing]
        left += len(mine) - len(handled)
    assert result.left == left == len(await store.letters())
