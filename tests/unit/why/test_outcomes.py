"""What became of a change, for each handler by where that one stands."""

from dataclasses import replace
from datetime import UTC, datetime

import bson

from tailrace.event import ChangeEvent
from tailrace.model import Route, StartPoint
from tailrace.model.desired_state import DesiredHandler
from tailrace.model.gap import Gap
from tailrace.model.subscription import Subscription
from tailrace.why.answer import State
from tailrace.why.followed import followed
from tailrace.why.outcomes import Evidence
from tests.unit.engine.changes import NOTHING, change, changes, checkpoint, time, token, until
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.test_desired_states import desired
from tests.unit.engine.watching import Destination, Watching

ROUTES = [Route("orders", ("audit", "index"), frozenset(), ())]
AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
FIVE = ChangeEvent.from_raw(bson.encode(change(5)))


def at(number: int, **fields: object) -> Subscription:
    position = replace(
        NOTHING,
        event_token=token(number),
        high_water=token(number),
        cluster_time=time(number),
        started=time(1),
    )
    return Subscription(position, **fields)  # type: ignore[arg-type]


def outcomes(*gaps: Gap, **subscriptions: Subscription) -> dict[str, tuple[State, str]]:
    stored = checkpoint(1).with_subscriptions(subscriptions)
    found = Evidence(ROUTES, StartPoint(), stored, gaps, []).outcomes(FIVE)
    return {name: (one.state, one.detail) for name, one in found.items()}


def test_each_handler_has_what_is_not_after_its_own_position() -> None:
    found = outcomes(audit=at(9), index=at(3, halted="no such table"))
    assert found["audit"][0] is State.HANDLED
    state, detail = found["index"]
    assert state is State.AFTER_CHECKPOINT
    assert detail.endswith("the handler is halted: no such table")


def test_a_gap_of_one_handler_is_none_of_the_others() -> None:
    gap = Gap("orders", token(3), time(3), time(8), "ann moved it forward", "seek", AT, ("index",))
    found = outcomes(gap, audit=at(9), index=at(9))
    assert found["index"][0] is State.IN_GAP
    assert found["audit"][0] is State.HANDLED


async def test_a_handler_on_its_own_says_where_it_stands() -> None:
    audit, index = Destination("audit"), Destination("index")
    one = Watching(
        ScriptedDriver(*changes(1, 4)),
        audit.routed(concurrency=1),
        index.routed(concurrency=1),
        checkpoint_seconds=0,
    )
    async with one.run():
        await until(lambda: len(audit.handled) == len(index.handled) == 3)
        alone = replace(desired(), handlers={"index": DesiredHandler(paused=True)})
        await one.runtime.desired_states.write(alone)
        one.watcher.apply(alone)
        await until(lambda: one.watcher.status_of("index").state.value == "paused")
        one.driver.oplog += changes(4, 7)
        await until(lambda: len(audit.handled) == 6)
        await until(lambda: one.saved is not None and one.saved.of("audit") is not None)
        evidence = Evidence(ROUTES, StartPoint(), one.saved, [], [], followed=followed(one.watcher))
        found = evidence.outcomes(FIVE)
    assert found["audit"].state is State.HANDLED
    assert found["index"].state is State.NOT_READ
    assert found["index"].detail.startswith("the handler is paused: paused by ann at ")
