"""What probes, the status and the metrics say of a handler on its own, and how it is restarted."""

from dataclasses import replace

import pytest

from tailrace.engine import WatcherState, handler_runs, shared_stream
from tailrace.engine.read import reader
from tailrace.engine.status.status import Status
from tailrace.errors import CheckpointError, DeadLetterError
from tailrace.event import ChangeEvent
from tailrace.model import Checkpoint, Position, PositionKind, Scope
from tailrace.model.dead_letter import DeadLetter
from tailrace.model.desired_state import DesiredHandler
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.replay import ReplayRequest
from tailrace.stores.memory import MemoryDeadLetters
from tests.unit.engine.changes import change, changes, ddl, invalidate, number, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver, disconnected, refused, resumable
from tests.unit.engine.stores import ScriptedStore
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.watching import (
    NOW,
    Destination,
    Watching,
    running,
    stopped_clock,
    supervisor_of,
)

HALT = FailurePolicy(attempts=1, halt=True, backoff=Backoff(0, 0))


class Strict(Destination):
    """It refuses the event ``odd``."""

    odd: int | None = 3

    async def on_event(self, event: ChangeEvent) -> None:
        if number(event) == self.odd:
            raise ValueError("no such table")
        await super().on_event(event)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_runs, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(shared_stream, "_FIRST_SECONDS", 0.0)


def watching(audit: Destination, index: Destination) -> Watching:
    handlers = (audit.routed(concurrency=1), index.routed(concurrency=1, failure=HALT))
    one = Watching(ScriptedDriver(*changes(1, 10)), *handlers, checkpoint_seconds=0)
    one.runtime.clock.answered(time(9))
    return one


def streams(one: Watching) -> int:
    return sum(not (cursor.closed or cursor.killed) for cursor in one.driver.cursors)


def sample(one: Watching, name: str, **labels: str) -> float | None:
    labels = {"scope": "orders", **labels}
    return one.metrics.registry.get_sample_value(f"tailrace_{name}", labels)


async def test_a_handler_that_is_halted_on_its_own_is_told_and_restarted_alone() -> None:
    audit, index = Destination("audit"), Strict("index")
    one = watching(audit, index)
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await until(lambda: len(audit.handled) == 9)
        await until(lambda: one.watcher.status_of("index").state is WatcherState.HALTED)
        assert one.watcher.status.state is not WatcherState.HALTED
        (reason,) = supervisor.not_ready()
        assert reason.startswith("scope orders: handler 'index' is halted: ")
        assert "no such table" in reason
        assert reason.endswith("'tailrace scopes restart orders --handler index' restarts it")
        assert supervisor.degraded() == []
        shown = supervisor.status()["orders"]["handlers"]
        assert (shown["index"]["state"], shown["audit"]["state"]) == ("halted", "attached")
        assert "no such table" in shown["index"]["reason"]
        assert shown["audit"]["reason"] == ""
        refused = supervisor.restart("orders", handler="audit")
        assert refused.startswith("handler 'audit' of scope 'orders' is ")
        assert refused.endswith(": only a halted one is restarted")
        assert supervisor.restart("orders", handler="index") == ""
        await until(lambda: one.watcher.status_of("index").state is WatcherState.HALTED)
        index.odd = None
        assert supervisor.restart("orders") == "", "all of the scope that is halted"
        await until(lambda: index.handled == [*range(1, 10)])
        assert audit.handled == [*range(1, 10)]
        assert one.counted("watcher_restarts_total", reason="operator") == 2


async def test_a_scope_whose_handlers_are_all_halted_is_restarted_as_a_whole() -> None:
    audit, index = Strict("audit"), Strict("index")
    one = Watching(
        ScriptedDriver(*changes(1, 10)),
        audit.routed(concurrency=1, failure=HALT),
        index.routed(concurrency=1, failure=HALT),
    )
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await until(lambda: supervisor.halted == ["orders"])
        await until(lambda: not one.watcher.goes_on)
        shown = supervisor.status()["orders"]["handlers"]
        assert {each["state"] for each in shown.values()} == {"halted"}
        refused = supervisor.restart("orders", handler="index")
        assert "'tailrace scopes restart orders' restarts them" in refused
        audit.odd = index.odd = None
        assert supervisor.restart("orders") == ""
        await until(lambda: audit.handled == index.handled == [*range(1, 10)])


async def test_a_handler_that_is_paused_on_its_own_is_told_and_does_not_make_it_unready() -> None:
    audit, index = Destination("audit"), Destination("index")
    one = watching(audit, index)
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        await one.until_state(WatcherState.CAUGHT_UP)
        assert sample(one, "streams_open") == 1
        assert sample(one, "subscription_state", handler="index", state="attached") == 1
        assert sample(one, "lag_seconds", handler="index", stage="handled") == 0
        alone = replace(desired(), handlers={"index": DesiredHandler(paused=True)})
        await one.runtime.desired_states.write(alone)
        one.watcher.apply(alone)
        await until(lambda: one.watcher.status_of("index").state is WatcherState.PAUSED)
        assert supervisor.not_ready() == []
        (line,) = supervisor.degraded()
        assert line.startswith("scope orders: handler 'index' is paused: paused by ann at ")
        assert "'tailrace scopes resume orders --handler index' continues" in line
        assert sample(one, "subscription_state", handler="index", state="paused") == 1
        assert sample(one, "subscription_state", handler="index", state="attached") == 0
        one.driver.oplog += changes(10, 15)
        await until(lambda: audit.handled[-1] == 14)
        await one.until_state(WatcherState.CAUGHT_UP)
        one.runtime.clock.answered(time(14))
        found = supervisor.status()["orders"]
        assert found["handlers"]["index"]["lag_seconds"]["committed"] == 5
        assert found["handlers"]["audit"]["lag_seconds"]["handled"] == 0
        assert found["lag_seconds"]["committed"] == 5, "that of its last handler"
        assert sample(one, "lag_seconds", stage="committed") == 5
        assert found["position"]["cluster_time"] is not None
        assert found["streams"] == 1


async def test_liveness_ends_if_the_stream_of_one_handler_receives_nothing() -> None:
    audit, index = Destination("audit"), Destination("index")
    one = watching(audit, index)
    supervisor = supervisor_of(one)
    own = Status(one.watcher.status.scope)
    one.watcher.status.enter(WatcherState.CAUGHT_UP)
    one.watcher.status.apart = lambda: {"index": own}
    own.enter(WatcherState.CATCHING_UP)
    own.entered, own.stream.heard = NOW - 2000, NOW - 1000
    with stopped_clock():
        (reason,) = supervisor.not_alive()
    assert reason == "scope orders: handler 'index': no answer from the server for 1000 s"


async def test_what_is_halted_together_is_restarted_and_those_on_their_own_come_back() -> None:
    """Meanwhile these go on."""
    audit, index, slow = Destination("audit"), Strict("index"), Destination("slow")
    slow.held, index.odd = {2}, None
    driver, order_of_slow = ScriptedDriver(*changes(1, 10)), {"slow": DesiredHandler(paused=True)}
    one = Watching(driver, *(each.routed(concurrency=1) for each in (audit, index, slow)))
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        slow.held = set()
        await until(lambda: len(slow.handled) == 9)
        one.watcher.apply(replace(desired(), handlers=order_of_slow))
        await until(lambda: one.watcher.status_of("slow").state is WatcherState.PAUSED)
        driver.faults[9] = [refused(286)]
        driver.refused_starts = {"resume after 9": refused(286)}
        await until(lambda: one.watcher.status.state is WatcherState.HALTED)
        driver.refused_starts = {}
        one.watcher.apply(desired(2))
        driver.oplog += changes(10, 15)
        await until(lambda: len(slow.handled) == 14)
        assert list(one.watcher.apart) == ["slow"]
        refusal = supervisor.restart("orders", handler="index")
        assert "is halted with others: 'tailrace scopes restart orders' restarts them" in refusal
        assert supervisor.restart("orders") == ""
        await until(lambda: not one.watcher.apart)
        assert slow.handled == audit.handled == index.handled == [*range(1, 15)]
        assert streams(one) == 1


async def test_a_handler_that_is_halted_where_others_have_left_is_restarted_by_its_name() -> None:
    audit, index = Destination("audit"), Strict("index")
    audit.held = {2}
    one = watching(audit, index)
    supervisor = supervisor_of(one)
    async with running(supervisor):
        await until(lambda: audit.begun[-1:] == [2])
        one.watcher.apply(replace(desired(), handlers={"audit": DesiredHandler(paused=True)}))
        await until(lambda: "audit" in one.watcher.apart)
        await until(lambda: one.watcher.status.state is WatcherState.HALTED)
        index.odd, audit.held = None, set()
        one.watcher.apply(desired(2))
        await until(lambda: len(audit.handled) == 9)
        assert one.watcher.status.state is WatcherState.HALTED
        assert supervisor.restart("orders", handler="index") == ""
        await until(lambda: len(index.handled) == 9 and not one.watcher.apart)


@pytest.mark.parametrize("held", [2, 21])
async def test_an_invalidate_that_ends_the_scope_ends_it_when_all_have_come_so_far(
    held: int,
) -> None:
    """Also for one that has begun the call with the invalidate when it leaves the others."""
    audit, slow = Destination("audit"), Destination("slow")
    slow.held = {held}
    oplog = [*changes(1, 20), ddl(20), invalidate(21), *changes(22, 25)]
    routed = audit.routed(), slow.routed(concurrency=1)
    one = Watching(ScriptedDriver(*oplog), *routed, stop_on_invalidate=True)
    async with one.run(stop=False):
        await one.until_state(WatcherState.STOPPED)
        assert list(one.watcher.apart) == ["slow"]
        slow.held = set()
    assert audit.handled == slow.handled == list(range(1, 22))
    assert {each.state for each in one.watcher.apart.values()} == {WatcherState.STOPPED}


async def test_a_handler_of_a_scope_that_has_ended_is_not_said_to_start_again() -> None:
    audit, index = Destination("audit"), Strict("index")
    routed = audit.routed(concurrency=1), index.routed(concurrency=1, failure=HALT)
    one = Watching(ScriptedDriver(*changes(1, 10)), *routed, stop_on_invalidate=True)
    other = Watching(ScriptedDriver(), Destination().routed(), scope=Scope("users", "shop"))
    supervisor = supervisor_of(one, other)
    async with running(supervisor):
        await until(lambda: one.watcher.status_of("index").state is WatcherState.HALTED)
        one.driver.oplog.append(invalidate(10))
        await one.until_state(WatcherState.STOPPED)
        refused = "handler 'index' of scope 'orders' is not followed any more"
        assert supervisor.restart("orders", handler="index").startswith(refused)
        assert one.watcher.status_of("index").state is WatcherState.HALTED


async def test_what_helps_a_handler_whose_history_is_lost_names_it() -> None:
    audit, index = Destination("audit"), Destination("index")
    one = watching(audit, index)
    async with one.run():
        await until(lambda: len(audit.handled) == len(index.handled) == 9)
        one.watcher.apply(replace(desired(), handlers={"index": DesiredHandler(paused=True)}))
        await until(lambda: one.watcher.status_of("index").state is WatcherState.PAUSED)
        one.driver.oplog += changes(10, 15)
        await until(lambda: len(audit.handled) == 14)
        one.driver.refused_starts = {"resume after 9": refused(286)}
        one.watcher.apply(desired(2))
        await until(lambda: one.watcher.status_of("index").state is WatcherState.HALTED)
    reason = one.watcher.apart["index"].reason
    assert "'tailrace scopes seek orders --handler index --at TIME'" in reason
    assert "'tailrace snapshot start orders --handler index'" in reason


@pytest.mark.parametrize("of", ["a handler on its own", "a replay"])
async def test_what_happens_to_every_stream_of_a_scope_is_counted_as_of_the_scope(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream resumes, and is opened again, while the shared stream goes on."""
    monkeypatch.setattr(reader, "PATIENCE_SECONDS", 0.0)
    audit, index = Destination("audit"), Destination("index")
    one = Watching(
        ScriptedDriver(*changes(1, 30), batch_size=1),
        audit.routed(concurrency=1),
        index.routed(concurrency=1),
        checkpoint_seconds=0,
        backoff=Backoff(0, 0),
    )
    supervisor, again = supervisor_of(one), [*range(1, 30)]
    async with running(supervisor):
        await until(lambda: audit.handled == index.handled == again)
        before = supervisor.status()["orders"]
        one.driver.faults[20], one.driver.faults[25] = [resumable()], [resumable()]
        one.driver.refused_starts["resume after 20"] = disconnected()
        index.held, index.begun = {19}, []
        if of == "a replay":
            ask = DesiredHandler(replay=ReplayRequest(time(1), time(29)), replay_generation=1)
        else:
            ask = DesiredHandler(
                seek=Position(PositionKind.IDLE, None, None, time(1)), seek_generation=1
            )
        given = replace(desired(), handlers={"index": ask})
        await one.runtime.desired_states.write(given)
        one.watcher.apply(given)
        restarts = lambda: one.counted("watcher_restarts_total", reason="stream")  # noqa: E731
        await until(lambda: restarts() > 0)
        in_flight = supervisor.status()["orders"]["in_flight"]["events"]
        assert sample(one, "in_flight_events") == in_flight > 0
        one.driver.refused_starts.clear()
        index.held = set()
        await until(lambda: index.handled == again * 2)
        found = supervisor.status()["orders"]
    families = one.metrics.registry.collect()
    resumes = next(each.samples for each in families if each.name == "tailrace_stream_resumes")
    assert sum(each.value for each in resumes) == found["resumes"] == 1
    assert found["restarts"] == restarts()
    assert found["events"] - before["events"] == 29
    assert found["checkpoint"]["sequence"] > before["checkpoint"]["sequence"]
    assert audit.handled == again


class AwayCheckpoints(ScriptedStore):
    """A store that cannot be read while it is ``away``."""

    away = False

    async def load(self, scope: str) -> Checkpoint | None:
        if self.away:
            raise CheckpointError("the disk is full")
        return await super().load(scope)


class AwayLetters(MemoryDeadLetters):
    """A store of dead letters that takes none while it is ``away``."""

    away, refused = False, 0

    async def claim(self, scope: str, epoch: int) -> None:
        self._require_there()
        await super().claim(scope, epoch)

    async def add(self, letter: DeadLetter, epoch: int) -> None:
        self._require_there()
        await super().add(letter, epoch)

    def _require_there(self) -> None:
        if self.away:
            self.refused += 1
            raise DeadLetterError("the disk is full")


async def test_a_dead_letter_that_cannot_be_stored_holds_no_other_handler() -> None:
    """As in an outage of the store: the others go on, as those without dead letters do."""
    audit, index = Destination("audit"), Strict("index")
    store, letters = AwayCheckpoints(), AwayLetters()
    set_aside = FailurePolicy(attempts=1, backoff=Backoff(0, 0))
    handlers = (audit.routed(concurrency=1), index.routed(concurrency=1, failure=set_aside))
    driver = ScriptedDriver(*changes(1, 6))
    one = Watching(driver, *handlers, letters=letters, store=store)
    async with one.run():
        await until(lambda: one.watcher.claim.epoch > 0 and bool(driver.starts))
        letters.away = store.away = True
        await until(lambda: letters.refused > 0 and len(audit.handled) == 5)
        await until(lambda: "watcher.restarting" in [each["event"] for each in one.logs])
        driver.oplog += [change(n) for n in range(6, 10)]
        await until(lambda: audit.handled == [*range(1, 10)])
        assert index.handled == [1, 2]
        letters.away = store.away = False
        await until(lambda: index.handled == [1, 2, *range(4, 10)])
    assert audit.handled == [*range(1, 10)]
    assert [each.handler for each in await letters.letters()] == ["index"]
