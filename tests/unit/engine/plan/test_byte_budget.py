"""The byte budget: bounded, fair, and never out of balance."""

import asyncio
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from tailrace.engine.plan.byte_budget import ByteBudget, Share
from tests.unit.engine.changes import settle

sizes = st.integers(1, 15)
scopes = st.integers(0, 2)


@dataclass
class Held:
    """Granted bytes; ``alone`` if their share held nothing else then."""

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
    """Readers acquire and release at every moment, and some are cancelled."""

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
        """Whether the rules grant a request; ``first``: no request is before it."""
        held = self.of(share)
        if not held or held + size <= self.OWN:
            return True
        need = max(held + size - self.OWN, 0) - max(held - self.OWN, 0)
        return first and self.lent() + need <= self.COMMON

    def turn(self) -> None:
        """Runs the tasks; exactly the readers that the rules admit are admitted, in order."""
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
        """Its bytes may be taken already, but it never learns of it."""
        if self.line and self.held:
            self.give_back(index)
            self.line.pop(waiter % len(self.line)).task.cancel()
            self.runner.run(settle())
            self.recount()

    def recount(self) -> None:
        """A grant beside a cancellation may come before or after it; both are right."""
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
