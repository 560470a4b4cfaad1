"""What probes, the status and the metrics say of a handler on its own, and how it is restarted."""

from dataclasses import replace
from time import monotonic

from tailrace.engine import WatcherState
from tailrace.engine.status.status import Status
from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.order import HandlerOrder
from tests.unit.engine.changes import changes, number, time, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.test_orders import order
from tests.unit.engine.watching import Destination, Watching, running, supervisor_of

HALT = FailurePolicy(attempts=1, halt=True, backoff=Backoff(0, 0))


class Strict(Destination):
    """It refuses the event ``odd``."""

    odd: int | None = 3

    async def on_event(self, event: ChangeEvent) -> None:
        if number(event) == self.odd:
            raise ValueError("no such table")
        await super().on_event(event)


def watching(audit: Destination, index: Destination) -> Watching:
    handlers = (audit.routed(concurrency=1), index.routed(concurrency=1, failure=HALT))
    one = Watching(ScriptedDriver(*changes(1, 10)), *handlers, checkpoint_seconds=0)
    one.runtime.clock.answered(time(9))
    return one


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
        alone = replace(order(), handlers={"index": HandlerOrder(paused=True)})
        await one.runtime.orders.give(alone)
        one.watcher.obey(alone)
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
    own.entered, own.stream.heard = monotonic() - 2000, monotonic() - 1000
    (reason,) = supervisor.not_alive()
    assert reason == "scope orders: handler 'index': no answer from the server for 1000 s"
