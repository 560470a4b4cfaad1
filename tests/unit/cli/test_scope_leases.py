"""The output of ``tailrace scopes`` for a store."""

from dataclasses import replace
from datetime import timedelta

import pytest
from bson.timestamp import Timestamp

from tailrace.cli import main
from tailrace.cli.scope_leases import list_scopes, release, scope_records
from tailrace.control.desired_state import store_desired_state
from tailrace.model.lease import Lease, Member
from tailrace.model.subscription import Subscription
from tailrace.stores import Store
from tailrace.stores.memory import (
    MemoryCheckpoints,
    MemoryDeadLetters,
    MemoryDesiredStates,
    MemoryVerifications,
)
from tailrace.stores.memory_leases import MemoryLeases
from tests.unit.cli.conftest import Configure
from tests.unit.cli.test_checkpoints import NOW, ORDERS

SAVED = replace(ORDERS, saved_at=NOW - timedelta(seconds=5))
ONE, TWO = Member("one/a1", "one", 4), Member("two/b2", "two", leaving=True)

LISTED = """\
SCOPE   OWNER   EPOCH  UNTIL                 CLUSTER TIME          SAVED
dead    nobody  1      -                     -                     -
new     nobody  0      -                     -                     -
orders  one     3      2026-11-30T12:00:08Z  2025-11-30T10:53:20Z  5s ago

MEMBER  SCOPES  AT MOST  JOINED
one     1       4        1m 2s ago
two     0       -        leaving
"""


@pytest.fixture
def seconds() -> list[float]:
    """The time that the clock of the leases shows."""
    return [0.0]


@pytest.fixture
def store(seconds: list[float]) -> Store:
    leases = MemoryLeases(lambda: seconds[0])
    checkpoints = MemoryCheckpoints({"orders": SAVED})
    return Store(
        checkpoints, MemoryDeadLetters(), leases, MemoryDesiredStates(), MemoryVerifications()
    )


async def test_scopes_are_listed_with_owner_and_position_and_the_live_members(
    store: Store, seconds: list[float]
) -> None:
    leases = store.leases
    await leases.prepare(["orders", "dead"])
    for member in (ONE, TWO):
        await leases.renew(member.id, [], 70, member)
    await leases.acquire(Lease("dead"), "gone/c3", 1, 10)
    seconds[0] = 60
    await leases.acquire(Lease("orders"), ONE.id, 3, 10)
    seconds[0] = 62
    assert await list_scopes(store, ["new", "orders"], NOW) == LISTED


async def test_handlers_on_their_own_are_named_with_what_helps(store: Store) -> None:
    later = replace(ORDERS.position, cluster_time=Timestamp(1_764_500_060, 1))
    apart = {
        "audit": Subscription(later),
        "index": Subscription(replace(later, cluster_time=Timestamp(1_764_500_000, 1))),
    }
    record = replace(ORDERS, epoch=5, handlers=("copy",), apart=apart, halted="odd")
    await store.checkpoints.save(record)
    await store_desired_state(store.desired_states, "orders", "ann", {"paused": True}, "audit")
    text = await list_scopes(store, ["orders"], NOW, shared=False)
    assert text.splitlines()[2:] == [
        "",
        "Handler 'audit' of scope 'orders' is paused: resume it with "
        "'tailrace scopes resume orders --handler audit'.",
        "",
        "Handler 'copy' of scope 'orders' is halted: odd: when that is mended, "
        "'tailrace scopes restart orders --handler copy'.",
        "",
        "Handler 'index' of scope 'orders' is at 2025-11-30T10:53:20Z, 1m 0s behind the furthest "
        "one.",
    ]
    (found,) = (await scope_records(store, ["orders"], shared=False))["scopes"]
    assert found["paused_handlers"] == ["audit"]


async def test_scopes_that_are_not_shared_have_no_owner_in_the_store(store: Store) -> None:
    text = await list_scopes(store, ["orders"], NOW, shared=False)
    assert text.splitlines()[1].split()[:4] == ["orders", "-", "-", "-"]
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("seconds_left", [1e6, 1e12])
async def test_a_lease_far_in_the_future_of_nobody_alive_is_released(
    store: Store, seconds_left: float
) -> None:
    leases = store.leases
    await leases.prepare(["orders"])
    await leases.acquire(Lease("orders"), "ghost/9", 7, seconds_left)
    text = await list_scopes(store, ["orders"], NOW)
    assert text.splitlines()[1].split()[:3] == ["orders", "nobody", "7"]
    assert "No process follows scope 'orders': its lease belongs to ghost/9, which is not" in text
    message = await release(leases, "orders", dry_run=True)
    assert "Dry run" in message
    assert not (await leases.read()).leases["orders"].free
    assert "Released (epoch 8)" in await release(leases, "orders", dry_run=False)
    found = (await leases.read()).leases["orders"]
    assert (found.free, found.owner, found.epoch) == (True, "", 8)
    assert "nothing was changed" in await release(leases, "orders", dry_run=False)


async def test_a_release_names_the_live_owner(store: Store) -> None:
    await store.leases.prepare(["orders"])
    await store.leases.renew(ONE.id, [], 70, ONE)
    await store.leases.acquire(Lease("orders"), ONE.id, 3, 10)
    message = await release(store.leases, "orders", dry_run=False)
    assert message.startswith("Scope 'orders' is followed by one (epoch 3).\nReleased (epoch 4)")


@pytest.mark.parametrize("verb", [["release", "orders"], ["release", "orders", "--dry-run"]])
def test_a_scope_without_a_lease_is_not_released(
    verb: list[str], configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("other.yaml", replicas={})
    assert main(["scopes", "--config", "other.yaml", *verb]) == 2
    assert "scope 'orders': has no lease; 'tailrace scopes list'" in capsys.readouterr().err
    assert main(["scopes", "list", "--config", "other.yaml"]) == 0


@pytest.mark.parametrize(
    "command",
    [
        *(["scopes", verb] for verb in ("restart", "pause", "resume", "skip", "positions")),
        ["scopes", "seek", "--undo"],
        *(["snapshot", verb] for verb in ("start", "status", "pause", "resume", "cancel")),
    ],
    ids=" ".join,
)
def test_a_handler_that_the_scope_does_not_have_is_refused_with_those_it_has(
    command: list[str], configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure()
    assert main([*command, "orders", "--handler", "odd"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--handler: scope 'orders' has no handler 'odd'; it has: log" in line


def test_a_handler_is_paused_without_a_daemon(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure()
    assert main(["scopes", "pause", "orders", "--handler", "log"]) == 0
    assert "handler 'log' of scope 'orders' is paused: no daemon" in capsys.readouterr().out
    assert main(["scopes", "pause", "orders", "--handler", "log"]) == 0
    assert "is paused already" in capsys.readouterr().out
    assert main(["scopes", "pause", "orders"]) == 0
    assert main(["scopes", "resume", "orders", "--handler", "log"]) == 1
    error = capsys.readouterr().err
    assert "'tailrace scopes resume orders' continues it, with all its handlers" in error
    assert main(["scopes", "resume", "orders"]) == 0
    assert main(["scopes", "positions", "orders"]) == 0
    assert "No positions of scope 'orders' are kept." in capsys.readouterr().out


@pytest.mark.parametrize("replicas", [None, {}])
def test_scopes_of_an_empty_store_are_listed(
    replicas: dict[str, str] | None, configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(replicas=replicas)
    assert main(["scopes"]) == 0
    printed = capsys.readouterr().out
    assert ("nobody" in printed) is (replicas is not None)
    assert ("Without 'replicas'" in printed) is (replicas is None)


def test_a_store_in_memory_is_refused_in_one_line(
    configure: Configure, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(store={"type": "memory"})
    assert main(["scopes"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tailrace: config.yaml: store.type: a store in memory is seen by ")
