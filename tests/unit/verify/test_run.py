"""When a verification ends though nothing more can be compared, and that its end is stored."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace as Named
from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.engine import WatcherState
from tailrace.errors import CheckpointError, CommandFailed, ConnectionFailed
from tailrace.model.failure_policy import Backoff
from tailrace.model.verification import Verification, VerificationRequest, VerificationState
from tailrace.stores.memory import MemoryDeadLetters, MemoryVerifications
from tailrace.verify.findings import Findings
from tailrace.verify.followed import FollowedHandler
from tailrace.verify.run import VerificationRun
from tests.contract.test_verification_store import FIRST
from tests.unit.verify.scripted import ORDERS, World, one


class FailingVerifications(MemoryVerifications):
    """Fails the first saves."""

    failures = 2

    async def save(self, verification: Verification) -> None:
        if self.failures:
            self.failures -= 1
            raise CheckpointError("the store is away")
        await super().save(verification)


def run_of(followed: Any, store: Any) -> VerificationRun:
    record = replace(FIRST, collections={ORDERS.name: ORDERS})
    source: Any = World()
    return VerificationRun(Findings(record, MemoryDeadLetters()), followed, source, store)


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


@pytest.mark.parametrize("read", ["now", "keys", "documents", "touched"])
async def test_elections_and_moves_of_the_source_are_waited_out(
    monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Whatever is asked meanwhile: what was compared before counts, and nothing differs."""
    monkeypatch.setattr("tailrace.verify.run.Backoff", lambda *_: Backoff(0.0, 0.0))
    world = World()
    for number in (1, 2, 3):
        world.change(number, "a")
    world.follow()
    world.rows.pop(one(3))
    world.failures[read] = [
        ConnectionFailed("the primary is gone"),
        CommandFailed("not primary", code=10107, code_name="NotWritablePrimary"),
        CommandFailed("interrupted", code=11602, code_name="InterruptedDueToReplStateChange"),
        CommandFailed("the collection is resharded", code=150, code_name="StaleEpoch"),
        CommandFailed("its metadata changed", code=246, code_name="SnapshotUnavailable"),
    ]
    plan = Named(options=Named(full_document=None, pipeline=()))
    followed = Named(
        scope="orders",
        handler=FIRST.handler,
        plan=plan,
        watcher=Named(plan=plan),
        routed=Named(wants=None),
        ended="",
        obstacle="",
        reached=world.reached,
        is_busy=lambda: False,
        open=lambda: nullcontext(world),
    )
    record = replace(FIRST, request=VerificationRequest(), collections={ORDERS.name: ORDERS})
    source: Any = world
    one_followed: Any = followed
    run = VerificationRun(
        Findings(record, MemoryDeadLetters()), one_followed, source, MemoryVerifications()
    )
    with capture_logs() as logs:
        await run.run()
    levels = [entry["log_level"] for entry in logs if entry["event"] == "verification.interrupted"]
    assert levels == ["info", "warning", "debug", "debug", "debug"]
    counts = run.record.counts
    assert (run.record.state, counts.equal, counts.missing) == (VerificationState.DONE, 2, 1)
    assert (counts.compared, world.failures[read]) == (3, [])
