"""Two live processes never share a name: the second one is refused at its start."""

from dataclasses import replace

import anyio
import pytest

from tailrace.errors import LeaseError, StartRefused
from tailrace.model.lease import Member
from tailrace.replicas.member_name import require_own_name
from tailrace.replicas.times import LeaseTimes
from tailrace.stores.memory_leases import MemoryLeases
from tests.unit.replicas.remote_store import RemoteLeases, Trouble, Wire
from tests.unit.replicas.simulated_time import the_loop

TIMES = LeaseTimes(10)
FIRST = Member.named("west", "host-1", "aa", 2)
SECOND = Member.named("west", "host-2", "bb", 2)


def store() -> MemoryLeases:
    return MemoryLeases(lambda: the_loop().time())


async def alive(leases: MemoryLeases, member: Member) -> None:
    """Sends heartbeats as a live member does."""
    while True:
        await leases.renew(member.id, (), TIMES.lease, member)
        await anyio.sleep(TIMES.renew)


def test_a_member_knows_its_host() -> None:
    assert (SECOND.name, SECOND.host) == ("west", "host-2")


async def test_the_second_live_member_of_a_name_is_refused_with_the_host_of_the_first() -> None:
    leases = store()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alive, leases, FIRST)
        await anyio.sleep(1)
        with pytest.raises(StartRefused, match="under the name 'west', on host host-1"):
            await require_own_name(leases, SECOND, TIMES)
        members = (await leases.read()).members
        assert [member.id for member in members] == [FIRST.id]
        tasks.cancel_scope.cancel()


async def test_a_crashed_process_of_the_name_delays_the_start_until_its_heartbeat_ends() -> None:
    leases = store()
    await leases.renew(FIRST.id, (), TIMES.lease, FIRST)
    await anyio.sleep(4)
    began = the_loop().time()
    await require_own_name(leases, SECOND, TIMES)
    assert 5 < the_loop().time() - began < 8


async def test_a_process_that_is_about_to_leave_is_waited_for() -> None:
    leases = store()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alive, leases, replace(FIRST, leaving=True))
        await anyio.sleep(1)
        with anyio.move_on_after(3 * TIMES.lease) as waited:
            await require_own_name(leases, SECOND, TIMES)
        assert waited.cancelled_caught
        tasks.cancel_scope.cancel()
    await leases.leave(FIRST.id)
    await require_own_name(leases, SECOND, TIMES)


async def test_of_two_that_start_at_once_exactly_one_goes_on() -> None:
    leases, went_on, refused = store(), list[str](), list[str]()

    async def start(member: Member) -> None:
        try:
            await require_own_name(leases, member, TIMES)
        except StartRefused:
            refused.append(member.id)
        else:
            went_on.append(member.id)
            await alive(leases, member)

    async with anyio.create_task_group() as tasks:
        for member in (FIRST, SECOND):
            tasks.start_soon(start, member)
        await anyio.sleep(3 * TIMES.lease)
        tasks.cancel_scope.cancel()
    assert len(went_on) == len(refused) == 1


async def test_a_store_that_cannot_be_read_does_not_keep_a_process_from_starting() -> None:
    """It stands by, and says why, as when the store fails later."""
    wire = Wire()
    wire.troubles = [Trouble(float("inf"), of="read") for _ in range(1000)]
    await require_own_name(RemoteLeases(store(), wire), SECOND, TIMES)
    assert TIMES.lease < the_loop().time() < 2 * TIMES.lease


async def test_a_start_that_is_stopped_leaves_no_member_that_the_next_one_waits_for() -> None:
    leases = store()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alive, leases, replace(FIRST, leaving=True))
        await anyio.sleep(1)
        with anyio.move_on_after(2):
            await require_own_name(leases, SECOND, TIMES)
        assert [each.id for each in (await leases.read()).members] == [FIRST.id]
        tasks.cancel_scope.cancel()


async def test_a_refusal_is_told_even_if_the_store_fails_after_it() -> None:
    class Failing(MemoryLeases):
        async def leave(self, member: str) -> None:
            raise LeaseError("no primary")

    leases = Failing(lambda: the_loop().time())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alive, leases, FIRST)
        await anyio.sleep(1)
        with pytest.raises(StartRefused, match="under the name 'west'"):
            await require_own_name(leases, SECOND, TIMES)
        tasks.cancel_scope.cancel()
