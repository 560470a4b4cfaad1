"""The byte budget: bounded, fair, and never out of balance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import hypothesis.strategies as st
from anyio.abc import TaskGroup
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from service.engine.budget import ByteBudget
from tests.unit.engine.changes import settle

sizes = st.integers(1, 15)


class Budgeting(RuleBasedStateMachine):
    """Readers that take and give back, and some that are cancelled, at every moment."""

    LIMIT = 10

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.budget = ByteBudget(self.LIMIT)
        self.held: list[int] = []
        self.line: list[tuple[int, asyncio.Task[None]]] = []

    def turn(self) -> None:
        self.runner.run(settle())
        granted = [size for size, task in self.line if task.done()]
        # Those who came first, and nobody before them.
        assert granted == [size for size, _ in self.line[: len(granted)]]
        self.held += granted
        del self.line[: len(granted)]

    @rule(size=sizes)
    def acquire(self, size: int) -> None:
        task = self.runner.get_loop().create_task(self.budget.acquire(size))
        self.line.append((size, task))
        self.turn()

    @rule(size=sizes)
    def try_acquire(self, size: int) -> None:
        fits = not self.line and (not self.held or sum(self.held) + size <= self.LIMIT)
        assert self.budget.try_acquire(size) is fits
        if fits:
            self.held.append(size)

    @rule(index=st.integers(0, 9))
    def release(self, index: int) -> None:
        if self.held:
            self.budget.release(self.held.pop(index % len(self.held)))
            self.turn()

    @rule(index=st.integers(0, 9))
    def cancel(self, index: int) -> None:
        if self.line:
            _, task = self.line.pop(index % len(self.line))
            task.cancel()
            self.turn()

    @rule(index=st.integers(0, 9))
    def cancel_one_that_is_just_granted(self, index: int) -> None:
        """Its bytes are taken already, and it never learns of it."""
        if not (self.line and self.held):
            return
        self.budget.release(self.held.pop(index % len(self.held)))
        _, task = self.line.pop(0)
        task.cancel()
        self.turn()

    @invariant()
    def used_is_what_is_held(self) -> None:
        if hasattr(self, "budget"):
            assert self.budget.used == sum(self.held)
            assert self.budget.used <= self.LIMIT or len(self.held) == 1

    @invariant()
    def nobody_waits_without_need(self) -> None:
        if hasattr(self, "budget") and self.line:
            assert self.held
            assert self.budget.used + self.line[0][0] > self.LIMIT

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for _, task in self.line:
                task.cancel()
            self.runner.close()


Budgeting.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
TestBudgeting = Budgeting.TestCase


@contextmanager
def waiting(tasks: TaskGroup, budget: ByteBudget, *sizes: int) -> Iterator[list[int]]:
    """Tasks that acquire in this order; the list says who was let in, and in which order."""
    let_in: list[int] = []

    async def acquire(size: int) -> None:
        await budget.acquire(size)
        let_in.append(size)

    for size in sizes:
        tasks.start_soon(acquire, size)
    yield let_in


async def test_a_small_request_does_not_overtake_a_large_one() -> None:
    budget = ByteBudget(100)
    assert budget.try_acquire(90)
    async with anyio.create_task_group() as tasks:
        with waiting(tasks, budget, 60, 5, 6) as let_in:
            await settle()
            assert let_in == []
            assert not budget.try_acquire(1)
            budget.release(90)
            await settle()
            assert let_in == [60, 5, 6]


async def test_a_reply_above_the_limit_is_let_in_alone() -> None:
    budget = ByteBudget(100)
    assert budget.try_acquire(1)
    async with anyio.create_task_group() as tasks:
        with waiting(tasks, budget, 1000, 1) as let_in:
            await settle()
            assert let_in == []
            budget.release(1)
            await settle()
            assert let_in == [1000]
            budget.release(1000)
            await settle()
            assert let_in == [1000, 1]


async def test_a_cancelled_waiter_makes_room_for_those_behind_it() -> None:
    budget = ByteBudget(100)
    assert budget.try_acquire(50)
    patience = anyio.CancelScope()

    async def give_up() -> None:
        with patience:
            await budget.acquire(1000)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        await settle()
        with waiting(tasks, budget, 10, 20) as let_in:
            await settle()
            assert let_in == []
            patience.cancel()
            await settle()
            assert let_in == [10, 20]
    assert budget.used == 80
