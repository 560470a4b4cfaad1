"""The collections of a scope change while they are listed, or while they are read."""

from typing import Any

import pytest

from tailrace.model import SnapshotProgress
from tailrace.model.snapshot import RangeState
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.plan import plan
from tests.snapshots import Scene, fold


async def test_collections_that_keep_coming_and_going_do_not_delay_the_beginning(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.db.c.insert_many([{"_id": n} for n in range(10)])
    plans = []

    async def plan_and_swap(*given: Any) -> SnapshotProgress:
        plans.append(await plan(*given))
        scene.db[f"new{len(plans) - 1}"].drop()
        scene.db[f"new{len(plans)}"].insert_one({"_id": 1})
        return plans[-1]

    monkeypatch.setattr("tailrace.snapshot.keys.plan", plan_and_swap)
    copy = scene.copy(options=SnapshotOptions(initial=True))
    async with copy.run():
        await copy.until_done()
        await copy.until_handled(scene.now())
    held = fold(copy.recorder.events)
    assert scene.source("c", f"new{len(plans)}").items() <= held.items()
    assert len(plans) == 3


async def test_a_planned_snapshot_says_why_it_has_not_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.db.c.insert_many([{"_id": n} for n in range(10)])
    reasons = []

    async def noting(*given: Any) -> SnapshotProgress:
        observed = copy.snapshots.observed()
        reasons.append(observed and observed.trouble)
        return await plan(*given)

    monkeypatch.setattr("tailrace.snapshot.keys.plan", noting)
    copy = scene.copy(options=SnapshotOptions(initial=True))
    async with copy.run():
        await copy.until_done()
    assert reasons == ["it lists the collections"] * 2 + ["it waits for the earlier changes"]
    observed = copy.snapshots.observed()
    assert observed is not None
    assert observed.trouble == ""


async def test_a_collection_that_becomes_capped_is_refused(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.db[name].insert_many([{"_id": n} for n in range(400)])
    options = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=1000)
    copy = scene.copy(options=options)
    async with copy.run():
        await copy.until_rows(100)
        scene.db.command({"convertToCapped": "a", "size": 1_000_000})
        await copy.until_done()
    assert copy.saved is not None
    states = {each.collection: each.state for each in copy.saved.by_collection}
    assert states == {"a": RangeState.REFUSED, "b": RangeState.DONE}
