"""Two replays of dead letters at once: one hands the letters over, in order."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from tailrace.engine.handle.replay import Replayed, replay_letters
from tailrace.errors import DeadLetterError, LeaseError, LeaseLost, StartRefused
from tailrace.event import ChangeEvent
from tailrace.model.lease import Lease
from tailrace.replicas.command_leases import CommandLeases
from tailrace.replicas.times import LeaseTimes
from tailrace.stores.memory import MemoryDeadLetters
from tailrace.stores.memory_leases import MemoryLeases
from tests.contract.stores import letter
from tests.handlers import handler
from tests.unit.engine.changes import number
from tests.unit.replicas.cluster import TTL
from tests.unit.replicas.remote_store import RemoteLeases, Trouble, Wire
from tests.unit.replicas.simulated_time import PROCESS, the_loop

NAME = "orders"
REFUSED = r"scope 'orders': its lease belongs to one, which .* runs out in \d+ s"
CUT = Trouble(before=float("inf"))


class Letters:
    """Three of one document in a store, and processes that replay them."""

    def __init__(self) -> None:
        self.shift = 0.0
        """Of the store's clock, as after an election."""
        self.leases = MemoryLeases(lambda: the_loop().time() + self.shift)
        self.store = MemoryDeadLetters(*(letter(n, key=7) for n in range(3)))
        self.handed_over: list[tuple[str, int]] = []
        self.ended_at: list[float] = []

    def held(self, process: str, wire: Wire, *scopes: str) -> CommandLeases:
        leases = RemoteLeases(self.leases, wire)
        clock = lambda: the_loop().time() + 1000.0 * len(process)  # noqa: E731
        return CommandLeases(leases, scopes or ("orders",), f"{process}/1", LeaseTimes(TTL), clock)

    async def replay(
        self, process: str, seconds: float = 0.0, wire: Wire | None = None, *scopes: str
    ) -> Replayed:
        """A replay by a process whose handler takes so long for each letter."""
        PROCESS.set(process)

        async def handle(event: ChangeEvent) -> None:
            self.handed_over.append((process, number(event)))
            try:
                await anyio.sleep(seconds)
            finally:
                self.ended_at.append(the_loop().time())

        leases = self.held(process, wire or Wire(), *scopes)
        handlers = {("orders", "audit"): handler("audit", handle)}
        chosen = await self.store.letters()
        return await leases.run(
            partial(
                replay_letters, self.store, handlers, chosen, ignore, {"orders": 1}, leases.require
            )
        )

    async def until_replayed(self, process: str) -> None:
        """By a process that tries again whenever it is refused."""
        with anyio.fail_after(10 * TTL):
            while await self.store.letters():
                try:
                    await self.replay(process)
                except StartRefused:
                    await anyio.sleep(0.5)


@pytest.fixture
def letters() -> Letters:
    return Letters()


def ignore(*_: object) -> None:
    """Reports to nobody."""


async def failing(
    call: Callable[..., Awaitable[object]], kind: type[Exception], *arguments: Any
) -> None:
    with pytest.raises(kind):
        await call(*arguments)


async def test_a_second_replay_is_refused_as_long_as_the_first_one_runs(letters: Letters) -> None:
    """Also while a handler takes longer than a lease; and not any more once it has ended."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(letters.replay, "one", 3 * TTL)
        for _ in range(8):
            await anyio.sleep(TTL)
            with pytest.raises(StartRefused, match=REFUSED):
                await letters.replay("two")
        await anyio.sleep(1.5 * TTL)
        await letters.store.add(letter(3, key=7), 1)
        assert await letters.replay("two") == Replayed(1, 0, 0)
    assert letters.handed_over == [("one", 0), ("one", 1), ("one", 2), ("two", 3)]


async def test_one_that_was_frozen_hands_nothing_more_over(letters: Letters) -> None:
    """Another one replays what it has not resolved, once its lease has run out."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(failing, letters.replay, LeaseLost, "one", 1.0)
        await anyio.sleep(1.5)
        the_loop().freeze("one")
        await anyio.sleep(0.5 * TTL)
        await failing(letters.replay, StartRefused, "two")
        await letters.until_replayed("two")
        the_loop().thaw("one")
    assert letters.handed_over == [("one", 0), ("one", 1), ("two", 1), ("two", 2)]


async def test_a_handler_that_runs_when_the_lease_cannot_be_renewed_is_cancelled(
    letters: Letters,
) -> None:
    """Before another process can have the lease."""
    async with anyio.create_task_group() as tasks:
        wire = Wire()
        tasks.start_soon(failing, letters.replay, LeaseLost, "one", 3 * TTL, wire)
        await anyio.sleep(TTL)
        wire.troubles = [CUT] * 100
        await letters.until_replayed("two")
        assert letters.ended_at[0] < TTL + LeaseTimes(TTL).own
    assert letters.handed_over == [("one", 0), ("two", 0), ("two", 1), ("two", 2)]


async def test_one_that_hears_that_its_lease_has_run_out_ends_at_once(letters: Letters) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(failing, letters.replay, LeaseLost, "one", 3 * TTL)
        await anyio.sleep(1)
        letters.shift = 1.5 * TTL
        await letters.until_replayed("two")
        await anyio.sleep(LeaseTimes(TTL).renew)
        assert letters.ended_at[-1] == LeaseTimes(TTL).renew
    assert letters.handed_over == [("one", 0), ("two", 0), ("two", 1), ("two", 2)]


@pytest.mark.parametrize("unknown", [Trouble(lost=True), CUT], ids=["it took effect", "it did not"])
async def test_an_acquisition_without_an_answer_is_looked_at_before_anything_else(
    letters: Letters, unknown: Trouble
) -> None:
    async with anyio.create_task_group() as tasks:
        wire = Wire()
        wire.troubles = [Trouble(), Trouble(), unknown]  # prepare, read, acquire
        tasks.start_soon(letters.replay, "one", TTL, wire)
        await anyio.sleep(TTL / 2)
        await failing(letters.replay, StartRefused, "two")
    assert [n for _, n in letters.handed_over] == [0, 1, 2]


async def test_without_any_answer_nothing_is_handed_over(letters: Letters) -> None:
    wire = Wire()
    wire.troubles = [Trouble(), *[Trouble(), CUT] * 3]
    with pytest.raises(LeaseError, match="was not acquired: connection refused"):
        await letters.replay("one", 0, wire)
    assert letters.handed_over == []


async def test_of_two_scopes_both_leases_are_needed(letters: Letters) -> None:
    async with anyio.create_task_group() as tasks:
        held = letters.held("one", Wire(), "users")
        tasks.start_soon(partial(held.run, partial(anyio.sleep, TTL)))
        await anyio.sleep(1)
        with pytest.raises(StartRefused, match="scope 'users'"):
            await letters.replay("two", 0, None, "orders", "users")
        assert (await letters.leases.read()).leases[NAME].free
    assert letters.handed_over == []


async def breaks() -> None:
    raise DeadLetterError("no such store")


@pytest.mark.parametrize("work", [breaks, partial(anyio.sleep, 3 * TTL)], ids=["fails", "hangs"])
async def test_a_replay_that_fails_or_is_cancelled_releases_its_lease(
    letters: Letters,
    work: Callable[[], Awaitable[None]],
) -> None:
    held = letters.held("one", Wire())
    with anyio.move_on_after(TTL) as scope:
        await failing(held.run, DeadLetterError, work)
    assert scope.cancelled_caught is (work is not breaks)
    lease = (await letters.leases.read()).leases[NAME]
    assert lease == Lease(NAME, 1, "", lease.seconds_left)
    assert lease.free
    await failing(held.run, DeadLetterError, breaks)
