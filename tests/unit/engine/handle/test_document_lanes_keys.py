"""Which events are of one document, and which are none of the handler's business."""

from __future__ import annotations

import anyio
from bson.int64 import Int64

from tailrace.event import ChangeEvent
from tests.unit.engine.changes import change, ddl, line_of, number, until
from tests.unit.engine.lane_probes import Lane, Probe


async def test_equal_ids_are_one_document() -> None:
    probe = Probe([3, 1, 0])
    await Lane(probe).run_all([change(n, key) for n, key in enumerate((1, 1.0, Int64(1)))])
    assert probe.most == 1
    assert probe.ended == [0, 1, 2]


async def test_a_null_id_is_a_document_and_no_barrier() -> None:
    probe = Probe([5])
    nothing = [change(n, documentKey={"_id": None}) for n in range(2)]
    await Lane(probe).run_all([*nothing, change(2), change(3)])
    assert probe.most == 3
    assert probe.begun.index(0) < probe.begun.index(1)


async def test_the_same_id_in_two_collections_is_two_documents() -> None:
    probe = Probe([5])
    await Lane(probe).run_all([change(0, "x"), change(1, "x", ns={"db": "shop", "coll": "b"})])
    assert probe.begun == [0, 1]
    assert probe.ended == [0, 1]
    assert probe.inside.total() == 0
    assert probe.most == 2


async def test_an_unwanted_event_without_a_key_is_no_barrier() -> None:
    gate = anyio.Event()
    begun: list[int] = []

    async def wait(event: ChangeEvent) -> None:
        begun.append(number(event))
        await gate.wait()

    lane = Lane(wait, wants=lambda event: event.document_key is not None)
    lane.lanes.feed(line_of([change(0), ddl(1), change(2)]))
    lane.lanes.close()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.lanes.run)
        await until(lambda: begun == [0, 2])
        gate.set()
