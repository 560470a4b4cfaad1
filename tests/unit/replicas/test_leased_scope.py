"""What becomes of the lease of a scope that drains, halts or does not end, in simulated time."""

from string import ascii_lowercase

import anyio

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment
from tests.unit.engine.scripted_driver import refused
from tests.unit.replicas.cluster import TTL, Cluster, Process, two, until_follows
from tests.unit.replicas.simulated_time import simulated, the_loop


def name_of(*, preferred: bool) -> str:
    """Of a member that should have ``orders``, or should not, beside the one named ``one``."""
    one = Member("1", "one")
    return next(
        name
        for name in ascii_lowercase
        if (assignment(["orders"], [one, Member("2", name)])["orders"] == "2") == preferred
    )


def one_scope_halts() -> Cluster:
    """Two scopes; the server refuses the stream of ``orders``."""
    cluster = Cluster("orders", "users")
    cluster.drivers["orders"].refusals = [refused(13)]
    return cluster


async def halted(cluster: Cluster) -> Process:
    """A process that has acquired ``orders``, which halts there."""
    one = cluster.start("one")
    await until_follows(cluster, "orders", one)
    return one


def test_a_process_that_drains_is_known_to_be_leaving_and_then_is_gone() -> None:
    cluster = Cluster("orders")

    async def script() -> None:
        owner, rest = await two(cluster)
        for process in (owner, rest):
            process.handler_seconds = 0.9
        await anyio.sleep(TTL)
        cluster.terminate(owner)
        await anyio.sleep(0.1)
        told = await cluster.leases.read()
        assert {each.id for each in told.members if each.leaving} == {owner.id}
        while not owner.stopped:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.01)
        told = await cluster.leases.read()
        assert [each.id for each in told.members] == [rest.id]

    simulated(cluster.run, script)


def test_a_scope_that_halted_stays_until_its_process_ends() -> None:
    """Elsewhere it would halt, too."""
    cluster = one_scope_halts()

    async def script() -> None:
        one = await halted(cluster)
        other = cluster.start(name_of(preferred=False))
        await anyio.sleep(4 * TTL)
        assert cluster.owners("orders") == ["one"]
        assert one.supervisor.watchers[0].status.state == "halted"
        assert await cluster.epoch("orders") == 1
        cluster.terminate(one)
        before = the_loop().time()
        await until_follows(cluster, "orders", other)
        assert the_loop().time() < before + 2

    simulated(cluster.run, script)


def test_a_scope_that_halted_is_handed_over_as_any_other() -> None:
    cluster = one_scope_halts()

    async def script() -> None:
        await halted(cluster)
        name = name_of(preferred=True)
        cluster.start(name)
        await anyio.sleep(4 * TTL)
        assert cluster.owners("orders") == [name]

    simulated(cluster.run, script)


def test_a_halted_scope_that_another_process_took_stands_by() -> None:
    cluster = one_scope_halts()

    async def script() -> None:
        one = await halted(cluster)
        other = cluster.start(name_of(preferred=False))
        await anyio.sleep(1)
        await cluster.freeze(one, 2 * TTL)
        await anyio.sleep(2)
        assert cluster.owners("orders") == [other.name]
        assert one.supervisor.watchers[0].status.state == "standby"

    simulated(cluster.run, script)


def test_a_scope_whose_handler_does_not_end_moves_all_the_same() -> None:
    """Its lease is not renewed once its handlers are cancelled, and runs out."""
    cluster = Cluster("orders")

    async def script() -> None:
        one = cluster.start("one", handler_seconds=8 * TTL, stubborn=True)
        await until_follows(cluster, "orders", one)
        name = name_of(preferred=True)
        cluster.start(name)
        await anyio.sleep(5 * TTL)
        assert cluster.owners("orders") == [name]

    simulated(cluster.run, script)


def test_leases_of_scopes_that_are_not_configured_any_more_do_not_count() -> None:
    cluster = Cluster("orders")

    async def script() -> None:
        await cluster.leases.prepare(["a", "b", "c"])
        one = cluster.start("one", max_scopes=1)
        await until_follows(cluster, "orders", one)
        assert the_loop().time() < 1

    simulated(cluster.run, script)


def test_a_lease_that_an_operator_releases_ends_the_term_at_the_next_read() -> None:
    cluster = Cluster("orders")

    async def script() -> None:
        owner, _ = await two(cluster)
        held = (await cluster.leases.read()).leases["orders"]
        assert await cluster.leases.free(held, held.epoch + 1)
        await anyio.sleep(1.5)
        assert not owner.follows("orders") or await cluster.epoch("orders") == held.epoch + 2
        await anyio.sleep(TTL)
        assert len(cluster.owners("orders")) == 1
        assert await cluster.epoch("orders") == held.epoch + 2

    simulated(cluster.run, script)
    cluster.check("orders")
