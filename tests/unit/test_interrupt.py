"""A stop as an event."""

import anyio
import pytest

from tailrace.stream import Interrupt
from tests.guards import against_hanging
from tests.unit.engine.changes import settle


async def test_a_wait_with_patience_has_its_time_to_end() -> None:
    stop = Interrupt()
    stop.set()
    with stop.interrupts(600) as scope:
        await settle()
    assert not scope.cancelled_caught
    with against_hanging(), stop.interrupts(0.01) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    late = Interrupt()
    with against_hanging(), late.interrupts(0.01) as scope:
        late.set()
        await anyio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("way", ["interrupts", "sleep", "wait"])
async def test_it_ends_the_waits_of_every_task(way: str) -> None:
    stop = Interrupt()
    ended: list[str] = []

    async def wait(name: str) -> None:
        if way == "interrupts":
            with stop.interrupts() as scope:
                await anyio.sleep_forever()
            assert scope.cancelled_caught
        elif way == "sleep":
            await stop.sleep(3600)
        else:
            await stop.wait()
        ended.append(name)

    with against_hanging():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "a")
            tasks.start_soon(wait, "b")
            await settle()
            assert ended == []
            stop.set()
    assert sorted(ended) == ["a", "b"]


async def test_a_block_that_begins_after_it_ends_at_its_first_wait() -> None:
    stop = Interrupt()
    stop.set()
    steps = []
    with against_hanging():
        with stop.interrupts() as scope:
            steps.append("before the wait")
            await anyio.sleep_forever()
            steps.append("behind it")
        await stop.sleep(3600)
        await stop.wait()
    assert scope.cancelled_caught
    assert steps == ["before the wait"]


async def test_a_shielded_wait_is_not_disturbed() -> None:
    """A cancelled read loses its reply, so a read is shielded, not interrupted."""
    stop = Interrupt()
    done = []
    with stop.interrupts():
        stop.set()
        with anyio.CancelScope(shield=True):
            await settle()
            done.append("read")
    assert done == ["read"]


async def test_a_child_is_set_with_its_parent() -> None:
    stop = Interrupt()
    with stop.child() as child, child.child() as grandchild:
        stop.set()
        assert child.is_set
        assert grandchild.is_set


async def test_a_child_is_set_alone() -> None:
    stop = Interrupt()
    with stop.child() as child, stop.child() as sibling:
        child.set()
        assert not stop.is_set
        assert not sibling.is_set


async def test_a_child_is_forgotten_when_its_block_ends() -> None:
    stop = Interrupt()
    with stop.child() as child:
        pass
    stop.set()
    assert not child.is_set


async def test_it_makes_calls_at_once_while_their_block_runs() -> None:
    stop, calls = Interrupt(), list[str]()
    with stop.calling(lambda: calls.append("before the end of the block")), stop.child() as child:
        with child.calling(lambda: calls.append("of a child")):
            stop.set()
        assert calls == ["before the end of the block", "of a child"]
    stop.set()
    assert len(calls) == 2
    with stop.calling(lambda: calls.append("too late")):
        assert calls[2:] == ["too late"]
