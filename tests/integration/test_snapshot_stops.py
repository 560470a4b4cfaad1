"""Clean stops in the middle of a snapshot, while a handler still retries an event."""

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from tailrace.event import ChangeEvent
from tailrace.model.failure_policy import Backoff, FailurePolicy
from tailrace.model.snapshot import SnapshotState
from tailrace.snapshot.options import SnapshotOptions
from tests.guards import against_hanging
from tests.handlers import handler
from tests.snapshots import Copy, Recorder, Scene


@pytest.mark.parametrize("by_batch", [True, False])
async def test_a_stop_while_a_row_waits_for_its_next_attempt_repeats_no_other_row(
    scene: Scene, by_batch: bool
) -> None:
    """Rows after it, and rows that other handlers have, do not come again."""
    scene.db.c.insert_many([{"_id": n} for n in range(400)])
    refused: set[Any] = {37, 150, 290}

    def fails(events: Sequence[ChangeEvent]) -> Exception | None:
        bad = {(event.document_key or {}).get("_id") for event in events} & refused
        return RuntimeError("not now") if bad else None

    single, beside = Recorder(fails=fails), Recorder()
    copy = scene.copy(
        "c",
        single,
        SnapshotOptions(initial=True, chunk_documents=50),
        by_batch=by_batch,
        beside=[handler("quick", on_events=beside.on_events)],
        failure=FailurePolicy(50, Backoff(60.0, 60.0)),
    )
    for document in sorted(refused):
        async with copy.run():
            with against_hanging():
                while len(beside.rows) < document or len(single.rows) < document - 50:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
        refused.remove(document)
    async with copy.run():
        await copy.until_done()
    for recorder in (single, beside):
        assert sorted((row.document_key or {})["_id"] for row in recorder.rows) == [*range(400)]
        assert [recorder.count(name) for name in ("snapshotBegin", "snapshotEnd")] == [1, 1]


@pytest.mark.parametrize("order", ["start", "pause", "cancel"])
async def test_an_order_survives_a_stop_while_a_change_waits(scene: Scene, order: str) -> None:
    """An operator's order survives the restart, even while a handler still retries a change."""
    scene.db.c.insert_many([{"_id": n} for n in range(200)])
    refused = {"refused"}
    failed = anyio.Event()

    def fails(events: Sequence[ChangeEvent]) -> Exception | None:
        if not {(event.document_key or {}).get("_id") for event in events} & refused:
            return None
        failed.set()
        return RuntimeError("not now")

    copy = scene.copy(
        "c",
        Recorder(fails=fails),
        SnapshotOptions(order != "start", chunk_documents=40, documents_per_second=400),
        by_batch=False,
        failure=FailurePolicy(50, Backoff(60.0, 60.0)),
    )
    orders = {"start": copy_start, "pause": copy_pause, "cancel": copy_cancel}
    async with copy.run():
        if order == "start":
            await copy.until_handled(scene.now())
        else:
            await copy.until_rows(30)
        scene.db.c.insert_one({"_id": "refused"})
        with against_hanging():
            await failed.wait()
            done = orders[order](copy)
            while not done():  # noqa: ASYNC110 - the stream's line comes to it
                await anyio.sleep(0.01)
    refused.clear()
    assert copy.saved is not None
    assert copy.saved.paused is (order == "pause")
    assert (copy.saved.state is SnapshotState.CANCELLED) is (order == "cancel")
    async with copy.run():
        await copy.until_handled(scene.now())
        copy.ordered(copy.snapshots.pause(paused=False))
        if order != "cancel":
            await copy.until_done()
    rows = [(row.document_key or {})["_id"] for row in copy.recorder.rows]
    assert len(set(rows)) == len(rows)
    assert order == "cancel" or set(rows) >= {*range(200)}


def copy_start(copy: Copy) -> Callable[[], bool]:
    assert copy.ordered(copy.snapshots.start()) == ""
    return lambda: copy.snapshots.progress is not None


def copy_pause(copy: Copy) -> Callable[[], bool]:
    assert copy.ordered(copy.snapshots.pause(paused=True)) == ""
    return lambda: copy.snapshots.progress is not None and copy.snapshots.progress.paused


def copy_cancel(copy: Copy) -> Callable[[], bool]:
    assert copy.ordered(copy.snapshots.cancel()) == ""
    return lambda: copy.snapshots.progress is not None and copy.snapshots.progress.over
