"""In the middle of a snapshot, the scope or a collection's name comes to mean something else."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import bson
import pytest
from structlog.testing import capture_logs

from tailrace.engine.status.snapshot_status import described
from tailrace.event.codec import CODEC
from tailrace.model import Scope
from tailrace.model.snapshot import RangeState, SnapshotState
from tailrace.snapshot.options import SnapshotOptions
from tests.mongod import Client
from tests.snapshots import Copy, Scene, fold, source
from tests.writers import mixed_ids

SLOW = SnapshotOptions(initial=True, chunk_documents=20, documents_per_second=1000)
COUNT = 400


def fill(scene: Scene, *names: str) -> None:
    for name in names:
        documents = [{"_id": each, "v": name} for each in mixed_ids(COUNT)]
        scene.db[name].insert_many(documents)


# --- another target --------------------------------------------------------------------------

TARGETS = {
    "another collection": ("a", "b"),
    "the whole database": ("a", None),
    "one collection of the database": (None, "b"),
}


@pytest.mark.parametrize("targets", TARGETS)
async def test_a_scope_that_follows_something_else_is_planned_again(
    scene: Scene, targets: str
) -> None:
    """Otherwise it would go on with the old collections, and end without the new ones."""
    before, after = (Scope("s", scene.database, each) for each in TARGETS[targets])
    fill(scene, "a", "b")
    copy = Copy(scene.server.uri, before, options=SLOW)
    async with copy.run():
        await copy.until_rows(100)
        assert not copy.is_done
    old = copy.saved
    assert old is not None
    copy.scope, read = after, len(copy.recorder.events)
    with capture_logs() as logs:
        async with copy.run():
            await copy.until(lambda: len(copy.recorder.events) > read)
            status = described(copy.snapshots.observed(), "")
            await copy.until_done()
    reason = f"the scope followed {before.target} when snapshot {old.id} of it began"
    assert copy.saved is not None
    (log_line,) = [log for log in logs if log["event"] == "snapshot.planned_again"]
    assert (log_line["snapshot"], log_line["target"], log_line["reason"]) == (
        copy.saved.id,
        after.target,
        reason,
    )
    assert status is not None
    assert status["reason"] == f"planned again for {after.target}: {reason}"
    names = ["a", "b"] if after.collection is None else [after.collection]
    rows = [event for event in copy.recorder.events[read:] if event.operation_type == "read"]
    assert len(rows) == COUNT * len(names)
    assert fold(rows) == source(scene.client, scene.database, names)


async def test_another_pipeline_does_not_plan_again(scene: Scene) -> None:
    fill(scene, "a")
    copy = scene.copy("a", options=SLOW)
    async with copy.run():
        await copy.until_rows(100)
        assert not copy.is_done
    old = copy.saved
    copy.stream["pipeline"] = ({"$match": {"operationType": "insert"}},)
    async with copy.run():
        await copy.until_done()
    assert old is not None
    assert copy.saved is not None
    assert copy.saved.id == old.id
    assert copy.recorder.count("read") == COUNT


async def test_an_end_that_was_reached_stays_one_wherever_the_scope_leads(scene: Scene) -> None:
    fill(scene, "a", "b")
    copy = scene.copy("a", options=replace(SLOW, initial=True))
    async with copy.run():
        await copy.until_done()
    copy.scope = Scope("s", scene.database, "b")
    async with copy.run():
        scene.db.b.insert_one({"_id": "new"})
        await copy.until_handled(scene.now())
    assert copy.recorder.count("read") == COUNT


# --- another collection under the name --------------------------------------------------------


def rename(client: Client, source: str, target: str) -> None:
    client.admin.command("renameCollection", source, to=target, dropTarget=True)


def rename_within(client: Client, database: str) -> None:
    rename(client, f"{database}.other", f"{database}.a")


def rename_across(client: Client, database: str) -> None:
    client[f"{database}-2"].other.insert_many(client[database].other.find())
    rename(client, f"{database}-2.other", f"{database}.a")


def out(client: Client, database: str) -> None:
    list(client[database].other.aggregate([{"$out": "a"}]))


def rename_away_and_back(client: Client, database: str) -> None:
    rename(client, f"{database}.a", f"{database}.old")
    rename(client, f"{database}.other", f"{database}.a")


SWAPS = (rename_within, rename_across, out)


async def swapped(copy: Copy, scene: Scene, swap: Callable[[Client, str], None]) -> None:
    """Swaps a collection during the copy; returns when everything is handled."""
    try:
        async with copy.run():
            await copy.until_rows(100)
            assert not copy.is_done
            await anyio.to_thread.run_sync(swap, scene.client, scene.database)
            await copy.until_done()
            await copy.until_handled(scene.now())
    finally:
        scene.client.drop_database(f"{scene.database}-2")


@pytest.mark.parametrize(("swap", "parallel"), [(SWAPS[0], 1), (SWAPS[1], 2), (SWAPS[2], 1)])
async def test_what_comes_to_stand_under_the_name_of_a_scope_s_collection_is_read(
    scene: Scene,
    swap: Callable[[Client, str], None],
    parallel: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream of the collection has a rename and an invalidate, and no insert."""
    monkeypatch.setattr("tailrace.snapshot.plan.RANGE_DOCUMENTS", 50)
    fill(scene, "a", "other")
    options = replace(SLOW, parallel=parallel)
    copy = scene.copy("a", options=options)
    with capture_logs() as logs:
        await swapped(copy, scene, swap)
    events = copy.recorder.events
    assert [event.operation_type for event in events if event.key is None] == [
        "snapshotBegin",
        "rename",
        "invalidate",
        "snapshotEnd",
    ]
    at = next(n for n, event in enumerate(events) if event.operation_type == "invalidate")
    assert fold(events[at:]) == scene.source("a")
    assert [log["collections"] for log in logs if "collections_replaced" in log["event"]] == [
        [f"{scene.database}.a"]
    ]
    assert copy.saved is not None
    states = [each.state for each in copy.saved.by_collection]
    assert states == [RangeState.DROPPED, RangeState.DONE]


@pytest.mark.parametrize("swap", [*SWAPS, rename_away_and_back])
async def test_a_database_s_swapped_collection_is_complete(
    scene: Scene, swap: Callable[[Client, str], None]
) -> None:
    fill(scene, "a", "other")
    copy = scene.copy(options=SLOW)
    await swapped(copy, scene, swap)
    names = scene.db.list_collection_names()
    assert state_of(copy) == found(scene, *names)


async def test_a_chosen_collection_is_read_again_after_a_swap(scene: Scene) -> None:
    """What took its place was not chosen, and so was not read under its own name."""
    fill(scene, "a", "other", "zoo")
    copy = scene.copy(options=replace(SLOW, initial=False))
    async with copy.run():
        await copy.until(lambda: bool(copy.store.records))
        assert copy.ordered(copy.snapshots.start(("a", "zoo"))) == ""
        await copy.until_rows(100)
        rename_within(scene.client, scene.database)
        await copy.until_done()
        await copy.until_handled(scene.now())
    assert copy.saved is not None
    assert copy.saved.state is SnapshotState.DONE
    state = {key: each for key, each in state_of(copy).items() if key[0] in ("a", "zoo")}
    assert state == found(scene, "a", "zoo")


Documents = dict[tuple[str, bytes], Any]
"""Documents by collection and ``_id``."""


def state_of(copy: Copy) -> Documents:
    """The state of a destination that moves what a rename moves."""
    state: Documents = {}
    for event in copy.recorder.events:
        if event.ns is None or event.ns.coll is None:
            continue
        name = event.ns.coll
        if event.operation_type == "rename":
            assert event.to is not None
            to, moved = str(event.to.coll), {k: v for k, v in state.items() if k[0] == name}
            state = {key: each for key, each in state.items() if key[0] not in (name, to)}
            state |= {(to, identity): each for (_, identity), each in moved.items()}
        elif event.document_key is not None:
            state[name, bson.encode(event.document_key)] = event.full_document
    return state


def found(scene: Scene, *names: str) -> Documents:
    """The documents of these collections, in the form of :func:`state_of`."""
    return {
        (name, bson.encode({"_id": each["_id"]})): each
        for name in names
        for each in scene.db.get_collection(name, CODEC).find()
    }
