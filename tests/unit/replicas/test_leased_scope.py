"""What becomes of the lease of a scope that drains, halts, does not end or is just acquired."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from string import ascii_lowercase
from typing import Any

import anyio
import pytest
from structlog.testing import LogCapture

from tailrace.model.lease import Member
from tailrace.replicas.assignment import assignment
from tailrace.replicas.scope_reports import read_reports
from tests.unit.engine.scripted_driver import refused
from tests.unit.replicas.cluster import TTL, Cluster, Process, cluster_of, two, until_follows
from tests.unit.replicas.remote_store import Trouble
from tests.unit.replicas.simulated_time import the_loop, until


def name_of(*, preferred: bool) -> str:
    """Of a member that should have ``orders``, or should not, beside the one named ``one``."""
    one = Member("1", "one")
    return next(
        name
        for name in ascii_lowercase
        if (assignment(["orders"], [one, Member("2", name)])["orders"] == "2") == preferred
    )


@asynccontextmanager
async def one_scope_halts() -> AsyncIterator[Cluster]:
    """Two scopes; the server refuses the stream of ``orders``."""
    async with cluster_of("orders", "users") as cluster:
        cluster.drivers["orders"].refused_starts = {"at 1": refused(20), "now": refused(20)}
        yield cluster


async def free(cluster: Cluster) -> None:
    """Takes the lease of ``orders`` from its owner, as an operator does."""
    held = (await cluster.leases.read()).leases["orders"]
    assert await cluster.leases.free(held, held.epoch + 1)


async def halted(cluster: Cluster) -> Process:
    """A process that has acquired ``orders``, which halts there."""
    one = cluster.start("one")
    await until_follows(cluster, "orders", one)
    return one


async def test_a_process_that_drains_is_known_to_be_leaving_and_then_is_gone() -> None:
    async with cluster_of("orders") as cluster:
        owner, rest = await two(cluster)
        for process in (owner, rest):
            process.handler_seconds = 0.9
        await anyio.sleep(TTL)
        cluster.terminate(owner)
        await anyio.sleep(0.1)
        table = await cluster.leases.read()
        assert {each.id for each in table.members if each.leaving} == {owner.id}
        await until(lambda: owner.stopped)
        table = await cluster.leases.read()
        assert [each.id for each in table.members] == [rest.id]


async def test_others_show_a_scope_as_its_owner_says_it_is() -> None:
    async with one_scope_halts() as cluster:
        owner = await halted(cluster)
        other = cluster.start("two", scopes=["orders"])

        def reported() -> dict[str, Any]:
            return other.supervisor.status()["orders"]["reported"] or {}

        await until(lambda: reported().get("state") == "halted")
        assert reported()["by"] == owner.name
        assert reported()["reason"] == owner.supervisor.status()["orders"]["reason"]
        assert other.supervisor.status()["orders"]["state"] == "standby"
        assert other.watcher.status.lag == reported()["lag_seconds"]
        assert owner.supervisor.status()["orders"]["reported"] is None


async def test_objects_are_open_in_the_process_that_has_the_lease_of_their_scope() -> None:
    async with cluster_of("orders", "users") as cluster:
        one = cluster.start("one")
        await until_follows(cluster, "orders", one)
        await until_follows(cluster, "users", one)
        other = cluster.start(name_of(preferred=True), scopes=["orders"])
        assert (sorted(one.open), other.open) == (["orders", "users"], [])
        await anyio.sleep(4 * TTL)
        assert (one.open, other.open) == (["users"], ["orders"])
        cluster.terminate(other)
        await until_follows(cluster, "orders", one)
        assert (sorted(one.open), other.open) == (["orders", "users"], [])


async def test_the_objects_of_a_halted_scope_stay_open_with_its_lease() -> None:
    async with one_scope_halts() as cluster:
        one = await halted(cluster)
        await until(lambda: one.supervisor.halted == ["orders"])
        assert "orders" in one.open
        cluster.start(name_of(preferred=True))
        await anyio.sleep(4 * TTL)
        assert "orders" not in one.open


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 1}', '{"a": ["x", "y"]}', '{"a": ["", "", "x"]}']
)
def test_a_report_that_is_damaged_says_nothing(text: str) -> None:
    assert read_reports(text) == {}


async def test_a_scope_that_halted_stays_until_its_process_ends() -> None:
    """Elsewhere it would halt, too."""
    async with one_scope_halts() as cluster:
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


async def test_a_scope_that_halted_is_handed_over_as_any_other() -> None:
    async with one_scope_halts() as cluster:
        await halted(cluster)
        name = name_of(preferred=True)
        cluster.start(name)
        await anyio.sleep(4 * TTL)
        assert cluster.owners("orders") == [name]


async def test_a_halted_scope_that_another_process_took_stands_by() -> None:
    async with one_scope_halts() as cluster:
        one = await halted(cluster)
        other = cluster.start(name_of(preferred=False))
        await anyio.sleep(1)
        await cluster.freeze(one, 2 * TTL)
        await anyio.sleep(2)
        assert cluster.owners("orders") == [other.name]
        assert one.supervisor.watchers[0].status.state == "standby"


async def test_a_scope_whose_handler_does_not_end_moves_all_the_same() -> None:
    """Its lease is not renewed once its handlers are cancelled, and runs out."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one", handler_seconds=8 * TTL, stubborn=True)
        await until_follows(cluster, "orders", one)
        name = name_of(preferred=True)
        cluster.start(name)
        await anyio.sleep(5 * TTL)
        assert cluster.owners("orders") == [name]


async def test_a_hand_over_that_cuts_calls_off_says_that_their_changes_come_again(
    log: LogCapture,
) -> None:
    async with cluster_of("orders") as cluster:
        one = cluster.start("one", handler_seconds=0.9 * TTL)
        await until_follows(cluster, "orders", one)
        other = cluster.start(name_of(preferred=True))
        await until_follows(cluster, "orders", other)
        await anyio.sleep(1)
    events = [each.event for each in cluster.handed_over]
    (again,) = {event for event in events if events.count(event) == 2}
    assert again == max(each.event for each in cluster.handed_over if each.process == one.id)
    (cut,) = log.entries
    assert (cut["event"], cut["scope"]) == ("scope.not_drained", "orders")
    assert cut["reason"] == "its shutdown.grace_seconds are over"
    assert "their changes come again" in cut["consequence"]


async def test_a_stop_has_nothing_to_save_of_a_scope_that_was_lost_before() -> None:
    """Its handler ends a call meanwhile, and another process follows the scope."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one", handler_seconds=0.7, stubborn=True)
        await until_follows(cluster, "orders", one)
        one.wire.troubles = [Trouble(before=float("inf"), of="save")] * 100
        await until(lambda: len(cluster.handed_over) == 3)
        await free(cluster)
        await until(lambda: not one.follows("orders"))
        assert one.supervisor.unsaved
        cluster.terminate(one)
        await until(lambda: one.stopped)
    assert one.supervisor.unsaved == {}


async def test_a_stop_whose_scope_is_lost_meanwhile_is_not_clean(log: LogCapture) -> None:
    """The call that runs is cancelled, and its change comes again."""
    async with cluster_of("orders") as cluster:
        one = cluster.start("one", handler_seconds=TTL / 2)
        await until(lambda: len(cluster.handed_over) == 2)
        cluster.terminate(one)
        await free(cluster)
        await until(lambda: one.stopped)
    assert one.supervisor.unsaved == {"orders": "its lease was lost while it drained"}
    (cut,) = log.entries
    assert (cut["event"], cut["reason"]) == ("scope.not_drained", one.supervisor.unsaved["orders"])


async def test_leases_of_scopes_that_are_not_configured_any_more_do_not_count() -> None:
    async with cluster_of("orders") as cluster:
        await cluster.leases.prepare(["a", "b", "c"])
        one = cluster.start("one", max_scopes=1)
        await until_follows(cluster, "orders", one)
        assert the_loop().time() < 1


async def test_a_lease_that_an_operator_releases_ends_the_term_at_the_next_read() -> None:
    async with cluster_of("orders") as cluster:
        owner, _ = await two(cluster)
        held = (await cluster.leases.read()).leases["orders"]
        assert await cluster.leases.free(held, held.epoch + 1)
        await anyio.sleep(1.5)
        assert not owner.follows("orders") or await cluster.epoch("orders") == held.epoch + 2
        await anyio.sleep(TTL)
        assert len(cluster.owners("orders")) == 1
        assert await cluster.epoch("orders") == held.epoch + 2


@pytest.mark.parametrize(
    "trouble",
    [Trouble(before=TTL / 2, of="acquire"), Trouble(after=TTL / 2, of="acquire")],
    ids=["the command is late", "the answer is late"],
)
async def test_a_process_that_stops_while_it_acquires_a_lease_frees_it(trouble: Trouble) -> None:
    async with cluster_of("orders") as cluster:
        one = cluster.start("one")
        one.wire.troubles = [trouble]
        await until(lambda: not one.wire.troubles)
        cluster.terminate(one)
        await until(lambda: one.stopped)
        assert (await cluster.leases.read()).leases["orders"].free
        await anyio.sleep(TTL / 2)
        lease = (await cluster.leases.read()).leases["orders"]
        assert (lease.free, lease.owner) == (True, ""), "the command that came late took nothing"
        await until_follows(cluster, "orders", cluster.start("next"))
