"""When verifications begin by themselves, with a clock that a test sets, and what is shown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace as Named
from typing import Any

import anyio
import pytest
from bson.timestamp import Timestamp
from structlog.testing import capture_logs

from tailrace.config.verification import VerificationSettings
from tailrace.engine import WatcherState
from tailrace.engine.current_desired_state import CurrentDesiredState
from tailrace.errors import CheckpointError, DriverError
from tailrace.model.snapshot import SnapshotRequest
from tailrace.model.verification import (
    Counts,
    Phase,
    Verification,
    VerificationRequest,
    VerificationState,
)
from tailrace.observe.metrics import Metrics
from tailrace.stores.memory import MemoryDeadLetters, MemoryVerifications
from tailrace.verify.rounds import Rounds
from tailrace.verify.verifications import Verifications
from tests.unit.engine.test_desired_states import desired
from tests.unit.verify.scripted import ORDERS

KEY = "orders", "copy"
LABELS = {"scope": "orders", "handler": "copy"}
HOUR = timedelta(hours=1)
WHOLE, PART = VerificationRequest(), VerificationRequest(keys=("7",))
DONE = replace(ORDERS, phase=Phase.DONE, counts=Counts().plus(equal=4, missing=1))


class Prepared(Verifications):
    """Verifications of ``collections``, without a server."""

    collections: Any = ()
    failures: Any = ()
    prepared: Any = None
    """What happens before it begins."""

    async def prepare(
        self, watcher: Any, routed: Any, request: VerificationRequest, by: str
    ) -> Verification:
        if self.failures:
            raise self.failures.pop()
        epoch, began = watcher.claim.epoch, datetime.now(UTC)
        record = Verification("orders", "copy", "1", epoch, request, by, began)
        if self.prepared is not None:
            self.prepared()
        by_name = {each.name: each for each in self.collections}
        return replace(record, at=Timestamp(1_700_000_000, 1), collections=by_name)


class Store(MemoryVerifications):
    failing = False

    async def save(self, verification: Verification) -> None:
        if self.failing:
            raise CheckpointError("the store is away")
        await super().save(verification)


@dataclass
class Process:
    """One that follows the scope, and whose clock is so far ahead."""

    store: Store = field(default_factory=Store)
    every: float = 86_400
    ahead: timedelta = timedelta()
    comparable: bool = True

    def __post_init__(self) -> None:
        comparison = opened if self.comparable else None
        self.routed = Named(
            name="copy", wants=None, handler=Named(comparison=comparison, from_beginning=False)
        )
        self.desired = CurrentDesiredState("orders")
        self.position = Named(cluster_time=Timestamp(1, 1), token=None)
        self.status = Named(
            state=WatcherState.STREAMING,
            read_lag=0.0,
            reached=lambda _: (self.position,),
            snapshot_of=lambda _: None,
        )
        self.status.saved = lambda _: None
        self.watcher = Named(
            name="orders",
            status=self.status,
            claim=Named(epoch=1, snapshot_of=lambda _: None),
            plan=Named(routed=[self.routed], options=Named(pipeline=(), full_document=None)),
            replays=Named(is_wanted=lambda _: False),
            scope=Named(identity=None, desired=self.desired),
            status_of=lambda _: self.status,
        )
        server: Any = Named()
        of: Any = (lambda: [self.watcher]), (lambda: server)
        self.verifications = Prepared(*of, self.store, MemoryDeadLetters())
        self.metrics = Metrics(())
        settings = VerificationSettings.model_validate({"every": f"{self.every:g}s"})
        wanted = {KEY: settings} if self.every else {}
        self.rounds = Rounds(self.verifications, lambda: wanted, self.metrics, self.now)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.verifications.run)
            await anyio.wait_all_tasks_blocked()
            yield
            tasks.cancel_scope.cancel()

    async def look(self) -> Verification | None:
        """What has begun in one look, when nothing more goes on by itself."""
        before = self.verifications.now(*KEY)
        await self.rounds.look()
        await anyio.wait_all_tasks_blocked()
        now = self.verifications.now(*KEY)
        return None if now is before else now

    async def asked(self, request: VerificationRequest) -> None:
        """An operator asks for a verification, which is done at once."""
        record = await self.verifications.prepare(self.watcher, self.routed, request, "ann")
        await self.verifications.start(record)
        await anyio.wait_all_tasks_blocked()

    @property
    def shown(self) -> Any:
        scopes: dict[str, Any] = {"orders": {"handlers": {"copy": {}}}}
        return self.rounds.added_to(scopes)["orders"]["handlers"]["copy"]["verification"]

    def metric(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"tailrace_{name}", LABELS)


@asynccontextmanager
async def opened(identity: Any) -> AsyncIterator[Any]:
    yield Named()


async def test_rounds_begin_at_once_and_after_every_which_the_store_remembers() -> None:
    one = Process()
    async with one.running():
        begun = await one.look()
        assert begun is not None
        assert begun.state is VerificationState.DONE
        one.ahead = 23 * HOUR
        assert await one.look() is None
    other = Process(one.store, ahead=23 * HOUR)
    async with other.running():
        assert await other.look() is None
        assert other.shown["due"] is not None
        other.ahead = 25 * HOUR
        begun = await other.look()
        assert begun is not None
        assert begun.is_round
        other.ahead = -30 * HOUR  # the clock of an earlier owner was wrong
        assert await other.look() is not None


async def test_only_what_compares_everything_counts_as_a_round() -> None:
    one = Process()
    async with one.running():
        await one.asked(PART)
        assert await one.look() is None, "somebody may wait for the result"
        one.ahead = 0.1 * HOUR
        assert await one.look() is not None
        await one.asked(PART)
        one.ahead = 25 * HOUR
        assert await one.look() is not None
    other = Process()
    async with other.running():
        await other.asked(WHOLE)
        assert await other.look() is None


async def going(one: Process) -> Any:
    """A round that goes on, as its handler has no position."""
    one.verifications.collections = [ORDERS]
    one.verifications.prepared = lambda: setattr(one.status, "reached", lambda _: None)
    assert await one.look() is not None
    run = one.verifications.running(*KEY)
    assert run is not None
    assert run.record.is_round
    return run


async def test_a_cancelled_round_comes_again_after_every() -> None:
    one = Process()
    async with one.running():
        await one.verifications.change(await going(one), VerificationState.CANCELLED)
        await anyio.wait_all_tasks_blocked()
        one.status.reached = lambda _: (one.position,)
        assert await one.look() is None
        one.ahead = 25 * HOUR
        assert await one.look() is not None


async def test_a_round_that_is_paused_is_not_replaced_by_the_next_one() -> None:
    one = Process()
    async with one.running():
        await one.verifications.change(await going(one), VerificationState.PAUSED)
        one.ahead = 50 * HOUR
        await one.look()
        last = one.verifications.now(*KEY)
        assert last is not None
        assert last.state is VerificationState.PAUSED


@pytest.mark.parametrize("request_", [WHOLE, PART])
async def test_an_operator_takes_the_place_of_a_round_which_comes_again(
    request_: VerificationRequest,
) -> None:
    one = Process()
    async with one.running():
        await going(one)
        await one.asked(request_)
        run = one.verifications.running(*KEY)
        assert run is not None
        assert run.record.by == "ann"
        assert [each.by for each in await one.store.load("orders")] == ["ann"]
        await one.verifications.change(run, VerificationState.CANCELLED)
        await anyio.wait_all_tasks_blocked()
        one.status.reached = lambda _: (one.position,)
        one.ahead = 0.1 * HOUR
        assert (await going(one)).record.is_round


async def test_a_round_goes_on_if_what_would_replace_it_cannot_be_stored() -> None:
    one = Process()
    async with one.running():
        await going(one)
        one.store.failing = True
        with pytest.raises(CheckpointError):
            await one.asked(WHOLE)
        one.store.failing = False
        run = one.verifications.running(*KEY)
        assert run is not None
        assert run.record.is_round


async def test_what_prevents_a_round_is_logged_once_shown_and_tried_again() -> None:
    one = Process()
    one.verifications.failures = [DriverError("no snapshot reads") for _ in range(3)]
    async with one.running():
        with capture_logs() as logs:
            for minutes in (0, 0.5, 2, 4):
                one.ahead = timedelta(minutes=minutes)
                assert await one.look() is None
        assert [each["event"] for each in logs] == ["verification.postponed"]
        assert one.shown["reason"] == "no snapshot reads"
        assert one.verifications.failures == []
        one.ahead = timedelta(minutes=6)
        assert await one.look() is not None
        assert one.shown["reason"] == ""


async def test_a_handler_that_cannot_be_asked_says_so() -> None:
    one = Process(comparable=False)
    async with one.running():
        assert await one.look() is None
        assert one.shown["reason"] == "handler 'copy' cannot be asked for its rows"


async def test_a_round_waits_for_the_documents_of_a_snapshot() -> None:
    one = Process()
    one.status.snapshot_of = lambda _: Named(progress=Named(id="s1", over=False))
    async with one.running():
        assert await one.look() is None
        assert one.shown["reason"] == "waiting for snapshot s1 of the handler"
        one.status.snapshot_of = lambda _: None
        done = await one.look()
        assert done is not None
        await one.verifications.repaired_by(done, "s2")
        wish = SnapshotRequest("s2", new=True)
        one.desired.receive(replace(desired(1), snapshot=wish, snapshot_generation=1))
        one.ahead = 25 * HOUR
        assert await one.look() is None
        assert one.shown["reason"] == "waiting for snapshot s2 of the handler"


async def test_the_metrics_are_those_of_the_last_complete_one_also_in_another_process() -> None:
    one = Process()
    one.verifications.collections = [DONE]
    async with one.running():
        assert one.metric("verified_through_timestamp") is None
        assert one.metric("differing_documents") is None
        await one.look()
        await one.asked(PART)
    other = Process(one.store)
    async with other.running():
        await other.look()
        for process in (one, other):
            assert process.metric("verified_through_timestamp") == 1_700_000_000
            assert process.metric("differing_documents") == 1
            late = process.metric("verification_late_timestamp")
            assert late == 1_700_000_000 + 2 * 86_400
            assert process.shown["proven"] == {
                "through": "2023-11-14T22:13:20Z",
                "differences": 1,
            }
        other.status.state = WatcherState.STANDBY
        assert other.metric("verified_through_timestamp") is None
        assert other.shown is None


async def test_a_verification_that_never_ends_is_late_since_the_first_one_began() -> None:
    one = Process()
    assert one.metric("verification_late_timestamp") is None
    one.verifications.collections = [replace(ORDERS, phase=Phase.REFUSED, note="it is a view")]
    async with one.running():
        for days in range(3):
            one.ahead = timedelta(days=days)
            await one.look()
        late = one.metric("verification_late_timestamp")
        assert late is not None
        first = datetime.now(UTC).timestamp()
        assert first + 1.9 * 86_400 < late < first + 2.1 * 86_400
        assert "it is a view" in one.shown["reason"]


async def test_what_prevented_a_round_is_not_shown_once_none_is_wanted() -> None:
    """Since a reload: nothing would ever end it."""
    one = Process(comparable=False)
    wanted = dict(one.rounds.configured())
    one.rounds.configured = lambda: wanted
    async with one.running():
        await one.look()
        one.routed.handler.comparison = opened
        assert one.shown["reason"] == "handler 'copy' cannot be asked for its rows"
        wanted.clear()
        await one.look()
        assert one.shown["reason"] == ""
