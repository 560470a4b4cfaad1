"""Which verifications a process knows."""

from dataclasses import replace
from types import SimpleNamespace as Named
from typing import Any

import anyio
import pytest

from tailrace.engine import WatcherState
from tailrace.errors import CheckpointError
from tailrace.model.verification import Counts, VerificationRequest, VerificationState
from tailrace.stores.memory import MemoryDeadLetters, MemoryVerifications
from tailrace.verify.findings import Findings
from tailrace.verify.followed import FollowedHandler
from tailrace.verify.run import VerificationRun
from tailrace.verify.verifications import Verifications
from tests.contract.test_verification_store import FIRST
from tests.unit.verify.scripted import ORDERS, World
from tests.unit.verify.test_run import FailingVerifications

WHOLE = replace(FIRST, request=VerificationRequest(), state=VerificationState.DONE)


async def test_results_of_a_scope_are_those_of_the_process_that_follows_it() -> None:
    store, server = MemoryVerifications(), Named()
    watcher: Any = Named(
        name=FIRST.scope,
        status=Named(state=WatcherState.STREAMING),
        claim=Named(epoch=1),
        plan=Named(routed=[Named(name=FIRST.handler)]),
    )
    of: Any = (lambda: [watcher]), (lambda: server)
    verifications = Verifications(*of, store, MemoryDeadLetters())

    async def shown() -> Any:
        verifications.leave()
        await verifications.adopt(watcher)
        (last,) = await verifications.last(FIRST.scope, [FIRST.handler])
        here = verifications.now(FIRST.scope, FIRST.handler)
        return last.counts.differences, here and here.counts.differences

    for lost, state in enumerate((WatcherState.STREAMING, WatcherState.STANDBY) * 2):
        counts = Counts().plus(missing=lost)
        await store.save(replace(WHOLE, collections={"a.b": replace(ORDERS, counts=counts)}))
        watcher.status.state = state
        watcher.claim.epoch += 1
        assert await shown() == (lost, lost if state is WatcherState.STREAMING else None)


@pytest.mark.parametrize("state", [VerificationState.PAUSED, VerificationState.CANCELLED])
async def test_a_change_that_the_store_does_not_take_is_none(state: VerificationState) -> None:
    """Else the next process would go on with what an operator has been told to be cancelled."""
    store = FailingVerifications()
    followed = FollowedHandler(FIRST.scope, FIRST.handler, lambda _: None)
    verifications = Verifications(list, Named, store, MemoryDeadLetters())
    source: Any = World()
    run = VerificationRun(Findings(FIRST, MemoryDeadLetters()), followed, source, store)
    for _ in range(store.failures):
        with pytest.raises(CheckpointError):
            await verifications.change(run, state)
        assert run.record.state is VerificationState.RUNNING
    await verifications.change(run, state)
    assert run.record.state is state
    assert [each.state for each in await store.load(FIRST.scope)] == [state]


async def test_a_late_answer_of_the_store_takes_the_place_of_no_newer_verification() -> None:
    """Two ask what is stored at once, as after a takeover: the loop, and an operator's request."""

    class Late(MemoryVerifications):
        answers: Any = ()

        async def load(self, scope: str) -> Any:
            found = await super().load(scope)
            if self.answers:
                await self.answers.pop().wait()
            return found

    watcher: Any = Named(
        name=FIRST.scope,
        status=Named(state=WatcherState.STREAMING),
        claim=Named(epoch=1),
        plan=Named(routed=[Named(name=FIRST.handler)]),
    )
    store, late = Late(), anyio.Event()
    verifications = Verifications(lambda: [watcher], Named, store, MemoryDeadLetters())
    await store.save(WHOLE)
    async with anyio.create_task_group() as tasks:
        store.answers = [late]
        tasks.start_soon(verifications.adopt, watcher)
        await anyio.wait_all_tasks_blocked()
        await verifications.adopt(watcher)
        await verifications.repaired_by(WHOLE, "5f3a")
        late.set()
    last = verifications.now(FIRST.scope, FIRST.handler)
    assert last is not None
    assert last.repair == "5f3a"
