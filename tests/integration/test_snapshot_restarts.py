"""What a run must know after a failure or a crash: the plan, orders, and handlers' states."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import anyio
import pytest
from pymongo import ReplaceOne

from tailrace.errors import DestinationUnavailable
from tailrace.event import ChangeEvent
from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import SnapshotRequest, SnapshotState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.snapshots import Snapshots
from tests.handlers import handler
from tests.snapshots import Recorder, Scene, fold

SLOW = SnapshotOptions(initial=True, chunk_documents=10, documents_per_second=200)


@pytest.fixture
def scene(scene: Scene) -> Scene:
    scene.db.c.insert_many([{"_id": n, "v": "before"} for n in range(200)])
    return scene


async def test_the_plan_is_saved_before_the_first_row(scene: Scene) -> None:
    """A later plan would not match the rows that destinations already have."""
    saved: list[SnapshotProgress | None] = []

    def note(events: Sequence[ChangeEvent]) -> None:
        if any(event.operation_type == "read" for event in events):
            saved.append(copy.saved)

    copy = scene.copy(None, Recorder(fails=note), SLOW, checkpoint_seconds=600)
    async with copy.run():
        await copy.until_rows(1)
    assert saved[0] is not None
    assert (saved[0].state, len(saved[0].ranges)) == (SnapshotState.READING, 1)


Give = Callable[[Snapshots], SnapshotRequest | str]
ORDERS: dict[str, tuple[Give, Callable[[SnapshotProgress], bool]]] = {
    "pause": (lambda of: of.pause(paused=True), lambda saved: saved.paused),
    "cancel": (lambda of: of.cancel(), lambda saved: saved.over),
}


@pytest.mark.parametrize("order", ORDERS)
async def test_what_an_operator_orders_is_saved_at_once(scene: Scene, order: str) -> None:
    """Not with the next checkpoint: a crash would undo what the operator was told."""
    give, is_so = ORDERS[order]
    copy = scene.copy(options=SLOW, checkpoint_seconds=600)
    async with copy.run():
        await copy.until_rows(20)
        assert copy.ordered(give(copy.snapshots)) == ""
        await copy.until(lambda: copy.saved is not None and is_so(copy.saved))


@dataclass
class Behind(Recorder):
    """Fails at the event of one document, after another handler has all later events."""

    others_have_it: anyio.Event = field(default_factory=anyio.Event)
    before: Callable[[], object] = lambda: None
    """Called at the failure."""
    failed: int = 0

    async def on_events(self, events: Sequence[ChangeEvent]) -> None:
        if not self.failed and any(event.document_key == {"_id": "stop"} for event in events):
            await self.others_have_it.wait()
            self.failed += 1
            self.before()
            raise DestinationUnavailable("once")
        await super().on_events(events)


async def test_no_row_is_older_than_what_its_handler_has(scene: Scene) -> None:
    """The next run begins before what one handler has, and passes each time in between."""
    behind, quick = Behind(), Recorder()
    copy = scene.copy(
        None,
        behind,
        SLOW,
        beside=[handler("quick", quick.on_event)],
        stream={"max_await_time_ms": 200, "batch_size": 1},
    )
    async with copy.run():
        await copy.until_rows(40)
        copy.ordered(copy.snapshots.pause(paused=True))
        await copy.until(lambda: copy.saved is not None and copy.saved.paused)
        behind.before = lambda: copy.ordered(copy.snapshots.pause(paused=False))
        scene.db.c.insert_one({"_id": "stop"})
        last_first = [ReplaceOne({"_id": n}, {"v": "new"}) for n in reversed(range(200))]
        scene.db.c.bulk_write(last_first)
        await copy.until(lambda: quick.count("replace") == 200)
        behind.others_have_it.set()
        await copy.until_done()
        await copy.until_handled(scene.now())
    assert behind.failed == 1
    rows = [event.document_key for event in quick.events if event.operation_type == "read"]
    assert len(rows) > 150
    for recorder in (behind, quick):
        assert fold(recorder.events) == scene.source("c")
