"""The byte budget: bounded, fair, and never out of balance."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

from tailrace.engine.read.byte_budget import ByteBudget, Share
from tests.unit.engine.changes import settle

sizes = st.integers(1, 15)
scopes = st.integers(0, 2)


@dataclass
class Held:
    """Bytes that were let in; ``alone`` where their share held nothing else then."""

    share: Share
    size: int
    alone: bool


@dataclass
class Waiting:
    """A reader that waits."""

    share: Share
    size: int
    task: asyncio.Task[None]


class Budgeting(RuleBasedStateMachine):
    """Readers that take and give back, and some that are cancelled, at every moment."""

    LIMIT, OWN, COMMON = 20, 3, 11

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.budget = ByteBudget(self.LIMIT, shares=3)
        self.shares = [self.budget.share() for _ in range(3)]
        self.held: list[Held] = []
        self.line: list[Waiting] = []

    def of(self, share: Share) -> int:
        return sum(each.size for each in self.held if each.share is share)

    def lent(self) -> int:
        return sum(max(self.of(share) - self.OWN, 0) for share in self.shares)

    def fits(self, share: Share, size: int, *, first: bool) -> bool:
        """What the rules say of a request; ``first``: nobody stands before it."""
        held = self.of(share)
        if not held or held + size <= self.OWN:
            return True
        need = max(held + size - self.OWN, 0) - max(held - self.OWN, 0)
        return first and self.lent() + need <= self.COMMON

    def turn(self) -> None:
        """Lets tasks run; those that were let in are those that the rules let in, in order."""
        expected = []
        first = True
        for each in self.line:
            if self.fits(each.share, each.size, first=first):
                expected.append(each)
                self.held.append(Held(each.share, each.size, not self.of(each.share)))
            else:
                first = False
        self.runner.run(settle())
        assert [each for each in self.line if each.task.done()] == expected
        self.line = [each for each in self.line if each not in expected]

    @rule(scope=scopes, size=sizes)
    def acquire(self, scope: int, size: int) -> None:
        share = self.shares[scope]
        if all(each.share is not share for each in self.line):  # a scope has one reader
            task = self.runner.get_loop().create_task(share.acquire(size))
            self.line.append(Waiting(share, size, task))
            self.turn()

    @rule(scope=scopes, size=sizes)
    def try_acquire(self, scope: int, size: int) -> None:
        share = self.shares[scope]
        if all(each.share is not share for each in self.line):
            fits = self.fits(share, size, first=not self.line)
            assert share.try_acquire(size) is fits
            if fits:
                self.held.append(Held(share, size, not self.of(share)))

    def give_back(self, index: int) -> None:
        held = self.held.pop(index % len(self.held))
        held.share.release(held.size)

    @rule(index=st.integers(0, 9))
    def release(self, index: int) -> None:
        if self.held:
            self.give_back(index)
            self.turn()

    @rule(index=st.integers(0, 9))
    def cancel(self, index: int) -> None:
        if self.line:
            self.line.pop(index % len(self.line)).task.cancel()
            self.turn()

    @rule(index=st.integers(0, 9), waiter=st.integers(0, 9))
    def cancel_one_that_is_just_granted(self, index: int, waiter: int) -> None:
        """Its bytes may be taken already, and it never learns of it."""
        if self.line and self.held:
            self.give_back(index)
            self.line.pop(waiter % len(self.line)).task.cancel()
            self.runner.run(settle())
            self.recount()

    def recount(self) -> None:
        """Who was let in beside one that gave up: any order of the two events is right."""
        for each in [each for each in self.line if each.task.done()]:
            self.line.remove(each)
            self.held.append(Held(each.share, each.size, not self.of(each.share)))

    @invariant()
    def used_is_what_is_held(self) -> None:
        if hasattr(self, "budget"):
            assert self.budget.used == sum(each.size for each in self.held)
            assert [share.held for share in self.shares] == [self.of(each) for each in self.shares]

    @invariant()
    def only_large_replies_go_beyond_the_limit(self) -> None:
        if hasattr(self, "budget"):
            large = sum(max(each.size - self.OWN, 0) for each in self.held if each.alone)
            assert self.budget.used <= self.LIMIT + large

    @invariant()
    def nobody_waits_who_holds_nothing(self) -> None:
        if hasattr(self, "budget"):
            assert all(self.of(each.share) for each in self.line)

    @invariant()
    def nobody_waits_without_need(self) -> None:
        if hasattr(self, "budget"):
            for number, each in enumerate(self.line):
                assert not self.fits(each.share, each.size, first=not number)

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            for each in self.line:
                each.task.cancel()
            self.runner.close()


Budgeting.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestBudgeting = Budgeting.TestCase


@contextmanager
def waiting(tasks: TaskGroup, budget: Share, *sizes: int) -> Iterator[list[int]]:
    """Tasks that acquire in this order; the list says who was let in, and in which order."""
    let_in: list[int] = []

    async def acquire(size: int) -> None:
        await budget.acquire(size)
        let_in.append(size)

    for size in sizes:
        tasks.start_soon(acquire, size)
    yield let_in


async def test_a_small_request_does_not_overtake_a_large_one() -> None:
    budget = ByteBudget(100).share()
    assert budget.try_acquire(90)
    async with anyio.create_task_group() as tasks:
        with waiting(tasks, budget, 60, 5, 6) as let_in:
            await settle()
            assert let_in == []
            assert not budget.try_acquire(1)
            budget.release(90)
            await settle()
            assert let_in == [60, 5, 6]


async def test_a_reply_above_the_limit_is_let_in_once_its_scope_holds_nothing() -> None:
    budget = ByteBudget(100, shares=2)
    one, other = budget.share(), budget.share()
    assert one.try_acquire(1)
    async with anyio.create_task_group() as tasks:
        with waiting(tasks, one, 1000) as let_in:
            await settle()
            assert let_in == []
            one.release(1)
            await settle()
            assert let_in == [1000]
            assert other.try_acquire(1000)
            assert not other.try_acquire(1)
            assert not one.try_acquire(1)


async def test_a_part_of_the_budget_is_never_lent() -> None:
    """One scope stalls with all that it could get, and waits for more; the other goes on."""
    budget = ByteBudget(100, shares=2)
    stalled, other = budget.share(), budget.share()
    assert all(stalled.try_acquire(25) for _ in range(3))
    async with anyio.create_task_group() as tasks:
        with waiting(tasks, stalled, 1) as let_in:
            await settle()
            for _ in range(5):
                assert other.try_acquire(10)
                assert other.try_acquire(15)
                assert not other.try_acquire(1)
                other.release(25)
            assert let_in == []
            assert budget.used == 75
            stalled.release(25)
            await settle()
            assert let_in == [1]


async def test_a_cancelled_waiter_makes_room_for_those_behind_it() -> None:
    budget = ByteBudget(100).share()
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
    assert budget.held == 80
