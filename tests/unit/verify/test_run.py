"""When a verification ends though nothing more can be compared, and that its end is stored."""

from dataclasses import replace
from types import SimpleNamespace as Named
from typing import Any

import pytest

from tailrace.engine import WatcherState
from tailrace.errors import CheckpointError
from tailrace.model.verification import Verification, VerificationState
from tailrace.stores.memory import MemoryDeadLetters, MemoryVerifications
from tailrace.verify.findings import Findings
from tailrace.verify.followed import FollowedHandler
from tailrace.verify.run import Run
from tests.contract.test_verification_store import FIRST
from tests.unit.verify.scripted import ORDERS, World


class FailingVerifications(MemoryVerifications):
    """Fails the first saves."""

    failures = 2

    async def save(self, verification: Verification) -> None:
        if self.failures:
            self.failures -= 1
            raise CheckpointError("the store is away")
        await super().save(verification)


def run_of(followed: Any, store: Any) -> Run:
    record = replace(FIRST, collections={ORDERS.name: ORDERS})
    source: Any = World()
    return Run(Findings(record, MemoryDeadLetters()), followed, source, store)


def reloaded(*handlers: Any, pipeline: Any = ()) -> FollowedHandler:
    plan = Named(routed=handlers, options=Named(pipeline=pipeline, full_document=None))
    status = Named(state=WatcherState.STREAMING)
    watcher: Any = Named(status=status, claim=Named(epoch=1), plan=plan)
    return FollowedHandler("orders", FIRST.handler, lambda _: watcher)


def handler(name: str = FIRST.handler, comparison: Any = object) -> Any:
    return Named(name=name, handler=Named(comparison=comparison))


@pytest.mark.parametrize(
    ("followed", "reason"),
    [
        (reloaded(handler("other")), "has no handler 'audit' any more"),
        (reloaded(handler(comparison=None)), "'audit' cannot be asked for its rows any more"),
        (reloaded(handler(), pipeline=({"$match": {}},)), "has a pipeline now"),
    ],
)
async def test_a_reload_may_end_it(followed: FollowedHandler, reason: str) -> None:
    store = MemoryVerifications()
    run = run_of(followed, store)
    await run.run()
    (stored,) = await store.load("orders")
    assert stored.state is VerificationState.FAILED
    assert reason in stored.reason


async def test_an_end_that_the_store_does_not_take_is_stored_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.verify.run.SAVE_SECONDS", 0)
    store = FailingVerifications()
    run = run_of(reloaded(), store)
    await run.run()
    assert not run.is_saved
    await run.save_end()
    assert [each.state for each in await store.load("orders")] == [VerificationState.FAILED]
