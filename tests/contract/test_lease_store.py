"""What every store of leases guarantees."""

from collections.abc import AsyncIterator

import anyio
import pytest

from tailrace.model.lease import Lease, LeaseTable, Member
from tailrace.replicas.ports import LeaseStore
from tests.contract.stores import Backing
from tests.guards import against_hanging

LONG, SHORT = 60.0, 0.2
A = Member("a-1", "a:9464")
B = Member(
    "b-2",
    "$b.x",
    max_scopes=3,
    leaving=True,
    scopes=frozenset({"orders", "$x"}),
    report='{"$x":["halted","$é",1.5]}',
)


@pytest.fixture
async def store(backing: Backing) -> AsyncIterator[LeaseStore]:
    async with backing.open() as opened:
        await opened.leases.prepare(["orders", "users"])
        yield opened.leases


async def lease(store: LeaseStore, scope: str = "orders") -> Lease:
    return (await store.read()).leases[scope]


async def acquired(store: LeaseStore, owner: str, seconds: float = LONG) -> Lease:
    seen = await lease(store)
    assert await store.acquire(seen, owner, seen.epoch + 1, seconds)
    return await lease(store)


async def until_free(store: LeaseStore) -> Lease:
    with against_hanging():
        while not (found := await lease(store)).free:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.02)
    return found


async def test_a_store_that_was_never_shared_has_no_leases(backing: Backing) -> None:
    async with backing.open() as opened:
        assert await opened.leases.read() == LeaseTable({}, [])


async def test_leases_are_free_at_first_and_made_once(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as other:
        await one.leases.prepare(["orders"])
        await acquired(one.leases, "a")
        await other.leases.prepare(["orders", "users"])
        found = (await other.leases.read()).leases
    assert found["users"].free
    assert (found["users"].epoch, found["users"].owner) == (0, "")
    assert (found["orders"].epoch, found["orders"].owner) == (1, "a")


async def test_a_held_lease_cannot_be_acquired(store: LeaseStore) -> None:
    held = await acquired(store, "a")
    assert not held.free
    assert 0 < held.seconds_left <= LONG
    assert not await store.acquire(held, "b", 2, LONG)
    assert (await lease(store)).owner == "a"
    assert (await lease(store, "users")).free


async def test_its_own_member_takes_a_lease_again(store: LeaseStore) -> None:
    """Its acquisition took effect, but the member did not get the reply."""
    held = await acquired(store, "a")
    assert await store.acquire(held, "a", 2, LONG)
    assert (await lease(store)).epoch == 2


async def test_an_outdated_view_acquires_nothing(store: LeaseStore) -> None:
    """Like a delayed command: another acquisition came first."""
    seen = await lease(store)
    held = await acquired(store, "a")
    await store.release("orders", "a", held.epoch)
    for owner in ("a", "b"):
        assert not await store.acquire(seen, owner, 1, LONG)
        assert not await store.acquire(seen, owner, 7, LONG)
    assert (await lease(store)).epoch == 1


async def test_a_lease_expires_after_lease_seconds_and_its_epoch_increases(
    store: LeaseStore,
) -> None:
    await acquired(store, "a", SHORT)
    seen = await until_free(store)
    assert seen.owner == "a"
    assert await store.acquire(seen, "b", 8, LONG)
    found = await lease(store)
    assert (found.owner, found.epoch) == ("b", 8)


async def test_one_of_many_concurrent_acquisitions_wins(backing: Backing) -> None:
    async with backing.open() as one, backing.open() as other:
        await one.leases.prepare(["orders"])
        for round_ in range(5):
            seen = await lease(one.leases)
            winners = []

            async def take(store: LeaseStore, owner: str, seen: Lease, won: list[str]) -> None:
                if await store.acquire(seen, owner, seen.epoch + 1, LONG):
                    won.append(owner)

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    store = (one if number % 2 else other).leases
                    tasks.start_soon(take, store, f"{round_}-{number}", seen, winners)
            assert [(await lease(one.leases)).owner] == winners
            await other.leases.release("orders", winners[0], seen.epoch + 1)


async def test_renewal_gives_the_full_time_again(store: LeaseStore) -> None:
    await acquired(store, "a-1", 5)
    assert await store.renew(A.id, ["orders", "users"], LONG, A) == 1, "users is not held"
    assert (await lease(store)).seconds_left > 5
    assert await store.renew(A.id, [], LONG, A) == 0
    assert (await lease(store, "users")).free


async def test_an_owner_that_renews_without_a_heartbeat_is_not_a_member(store: LeaseStore) -> None:
    """Like a command: it has a lease, but no scope is assigned to it."""
    held = await acquired(store, "a", 5)
    assert await store.renew("a", ["orders"], LONG) == 1
    assert (await lease(store)).seconds_left > held.seconds_left
    assert (await store.read()).members == []


async def test_an_expired_lease_is_not_renewed(store: LeaseStore) -> None:
    await acquired(store, "a-1", SHORT)
    await until_free(store)
    assert await store.renew(A.id, ["orders"], LONG) == 0
    assert (await lease(store)).free


async def test_the_lease_of_another_owner_is_not_renewed(store: LeaseStore) -> None:
    held = await acquired(store, "b-2", 5)
    assert await store.renew(A.id, ["orders"], LONG) == 0
    assert (await lease(store)).seconds_left <= held.seconds_left


async def test_a_release_frees_at_once_and_keeps_the_epoch(store: LeaseStore) -> None:
    held = await acquired(store, "a")
    await store.release("orders", "b", held.epoch)
    await store.release("orders", "a", held.epoch - 1)
    assert not (await lease(store)).free
    await store.release("orders", "a", held.epoch)
    found = await lease(store)
    assert found.free
    assert (found.owner, found.epoch) == ("", 1)
    assert await store.renew("a", ["orders"], LONG) == 0


async def test_an_operator_frees_the_lease_of_any_owner_with_a_greater_epoch(
    store: LeaseStore,
) -> None:
    seen = await acquired(store, "ghost", 1e9)
    assert await store.free(seen, 2)
    assert not await store.free(seen, 2), "it has changed since"
    found = await lease(store)
    assert found.free
    assert (found.owner, found.epoch) == ("", 2)
    assert await store.renew("ghost", ["orders"], LONG) == 0
    assert not await store.acquire(seen, "ghost", 3, LONG)
    assert await store.acquire(found, "b", 3, LONG)


async def test_a_request_is_for_the_owner_that_was_seen(store: LeaseStore) -> None:
    seen = await acquired(store, "a")
    await store.request(seen, "b")
    assert (await lease(store)).wanted_by == "b"
    assert await store.acquire(seen, "a", 2, LONG)
    assert (await lease(store)).wanted_by == ""
    await store.request(seen, "b")
    assert (await lease(store)).wanted_by == "", "that turn is over"


async def test_members_come_and_go(store: LeaseStore) -> None:
    assert (await store.read()).members == []
    await store.renew(A.id, [], SHORT, A)
    await store.renew(B.id, [], LONG, B)
    with against_hanging():
        while len((table := await store.read()).members) > 1:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.02)
    (found,) = table.members
    assert (found.id, found.name, found.max_scopes, found.leaving) == ("b-2", "$b.x", 3, True)
    assert 0 <= found.age_seconds < LONG
    assert found.scopes == {"orders", "$x"}
    assert table.name("b-2") == "$b.x"
    assert table.name("a-1") == "a-1"
    await store.renew(A.id, [], LONG, A)
    assert {each.id for each in (await store.read()).members} == {"a-1", "b-2"}
    await store.leave("b-2")
    assert [each.id for each in (await store.read()).members] == ["a-1"]


async def test_a_heartbeat_keeps_the_age(store: LeaseStore) -> None:
    await store.renew(A.id, [], LONG, A)
    await anyio.sleep(0.05)
    await store.renew(A.id, [], LONG, A)
    ((found,), leases) = ((table := await store.read()).members, table.leases)
    assert found.age_seconds >= 0.05
    assert isinstance(table, LeaseTable)
    assert set(leases) == {"orders", "users"}
