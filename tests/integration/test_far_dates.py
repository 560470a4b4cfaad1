"""Dates that MongoDB has and Python does not: nothing that the service reads is decoded to them."""

from dataclasses import replace

import pytest
from bson.datetime_ms import DatetimeMS

from tailrace.errors import CheckpointCorrupt
from tailrace.model.snapshot import SnapshotMode
from tailrace.snapshot.options import SnapshotOptions
from tailrace.stores import mongodb
from tests.contract.streams import DRIVER_NAMES, connected
from tests.snapshots import Scene

FAR = DatetimeMS(8_640_000_000_000_000)
"""13 September 275760, the last date of JavaScript."""
SMALL = SnapshotOptions(initial=True, chunk_documents=20)


@pytest.mark.parametrize("driver", DRIVER_NAMES)
async def test_what_a_database_lists_may_hold_any_date(scene: Scene, driver: str) -> None:
    """A view's pipeline, and the rule that a collection's documents must follow."""
    old = {"at": {"$lt": FAR}}
    scene.db.create_collection("c", validator=old)
    scene.db.c.insert_many([{"_id": n, "at": DatetimeMS(n)} for n in range(50)])
    scene.db.create_collection("v", viewOn="c", pipeline=[{"$match": old}])
    copy = scene.copy(options=SMALL, driver_name=driver)
    async with copy.run():
        await copy.until_done()
    assert copy.recorder.count("read") == 50


@pytest.mark.parametrize("driver", DRIVER_NAMES)
async def test_a_collection_of_any_dates_is_cut_into_ranges(
    scene: Scene, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.snapshot.plan.RANGE_DOCUMENTS", 50)
    keys = [-int(FAR) + n for n in range(100)] + [int(FAR) - n for n in range(100)]
    scene.db.c.insert_many([{"_id": DatetimeMS(key)} for key in keys])
    options = replace(SMALL, parallel=2)
    copy = scene.copy("c", options=options, driver_name=driver)
    async with copy.run():
        await copy.until_done()
        scene.db.c.delete_one({"_id": FAR})
        await copy.until_handled(scene.now())
    rows = [(event.document_key or {})["_id"] for event in copy.recorder.rows]
    assert sorted(map(int, rows)) == sorted(keys)
    assert copy.saved is not None
    assert len(copy.saved.ranges) == 2
    assert copy.recorder.events[-1].document_key == {"_id": FAR}


async def test_a_filter_may_name_any_date_and_keeps_it(scene: Scene) -> None:
    """In the request, in the server's explanation of it, and in the checkpoint."""
    dates = [0, 1000, int(FAR) - 1, int(FAR)]
    scene.db.c.insert_many([{"at": DatetimeMS(at)} for at in dates])
    date = f'{{"$date": {{"$numberLong": "{int(FAR) - 1}"}}}}'
    given = f'{{"at": {{"$gte": {date}}}}}'
    copy = scene.copy("c", options=SnapshotOptions())
    async with copy.run():
        await copy.until(lambda: copy.saved is not None or bool(copy.store.records))
        assert copy.ordered(copy.snapshots.start(filter=given)) == ""
        await copy.until_done()
    assert copy.saved is not None
    assert (copy.saved.mode, copy.saved.filter) == (SnapshotMode.REQUESTED, given)
    assert copy.recorder.count("read") == 2


@pytest.mark.parametrize("driver", DRIVER_NAMES)
async def test_a_damaged_checkpoint_may_hold_any_date(scene: Scene, driver: str) -> None:
    """A checkpoint that was damaged by hand is reported as such, and not as a lost connection."""
    scene.db.checkpoints.insert_one({"_id": "s", "saved_at": FAR})
    async with (
        connected(driver, scene.server.uri) as runner,
        mongodb.open_store(runner, database=scene.database) as store,
    ):
        with pytest.raises(CheckpointCorrupt, match=f"{scene.database}.checkpoints, scope 's'"):
            await store.checkpoints.load("s")
