"""Each change that a handler gets is counted once by its latency, whatever its lane."""

from collections.abc import Callable

import pytest

from tailrace.engine import Routed
from tailrace.event import ChangeEvent
from tests.unit.engine.changes import EPOCH, changes, until
from tests.unit.engine.destinations import Collecting, oplog
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.test_final_position import Scope
from tests.unit.engine.watching import Destination, Watching

NAME = "end_to_end_latency_seconds_count"


def of_even_documents(event: ChangeEvent) -> bool:
    return bool(event.cluster_time) and (event.cluster_time.time - EPOCH) % 2 == 0


@pytest.mark.parametrize(
    ("routed", "count"),
    [
        (lambda to: to.routed(), 99),
        (lambda to: to.routed(of_even_documents), 49),
        (lambda to: to.routed_by_batch(10), 99),
        (lambda to: to.routed_by_batch(10, concurrency=4), 99),
    ],
    ids=["document lanes", "some of the events", "batch lane", "key lanes"],
)
async def test_a_change_is_counted_when_its_handler_has_it(
    routed: Callable[[Destination], Routed], count: int
) -> None:
    audit = Destination()
    one = Watching(ScriptedDriver(*changes(1, 100)), routed(audit))
    async with one.run():
        await until(lambda: one.counted(NAME, handler="audit") == count)
        assert len(audit.handled) == count


async def test_a_change_is_counted_when_it_is_committed() -> None:
    lake, scope = Collecting("lake"), Scope(*oplog(20), batch_size=7)
    process = scope.process(lake.routed_to_commit(3))
    async with process.run():
        await until(lambda: len(lake.accepted) == 20)
        assert process.counted(NAME, handler="lake") == 0
    assert process.counted(NAME, handler="lake") == 20
