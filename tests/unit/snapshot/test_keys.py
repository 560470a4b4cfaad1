"""A snapshot of keys: one event for each key, in turn, whether it has a document or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import bson
import pytest
from bson import Int64
from bson.timestamp import Timestamp

from tailrace.engine.plan.row_source import KnownSnapshots
from tailrace.event.reply import Reply, read_reply
from tailrace.event.snapshot_events import is_row
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import (
    DocumentId,
    RangeProgress,
    SnapshotMode,
    SnapshotState,
    StoredRows,
)
from tailrace.snapshot.options import SnapshotOptions
from tailrace.snapshot.server import Find
from tailrace.snapshot.snapshots import Snapshots

TIME, UUID = Timestamp(9, 1), "0" * 32
KEYS = [1, "gone", 2.0, bson.Regex("a"), 5]


@dataclass
class Holding:
    """A server with these documents, of which one reply has at most ``most``."""

    documents: Sequence[Mapping[str, Any]]
    most: int = 1000
    finds: list[int] = field(default_factory=list)

    async def run(self, database: str, command: Mapping[str, Any]) -> dict[str, Any]:
        return {"ok": 1, "operationTime": TIME}

    async def find(self, find: Find) -> Sequence[Reply]:
        wanted = find.command["filter"]
        among = wanted["$or"][0] if "$or" in wanted else wanted
        asked = [one for one in self.documents if one["_id"] in among["_id"]["$in"]]
        self.finds.append(len(asked))
        id = 7 if len(asked) > self.most else 0
        cursor = {"firstBatch": asked[: self.most], "id": Int64(id), "ns": "shop.c"}
        return [read_reply(bson.encode({"cursor": cursor}))]


def snapshots(
    server: Holding,
    *,
    chunk: int = 2,
    progress: SnapshotProgress | None = None,
    rows: Mapping[str, StoredRows] | None = None,
    stored: bool = True,
) -> Snapshots:
    made = Snapshots(Scope("s", "shop"), server, SnapshotOptions(chunk_documents=chunk))

    async def keys(scope: str, verification: str) -> Mapping[str, Sequence[DocumentId]] | None:
        assert (scope, verification) == ("s", "5f")
        ids = [DocumentId(bson.encode({"_id": key})) for key in KEYS]
        return {UUID: ids} if stored else None

    begun = SnapshotProgress(
        "id",
        SnapshotMode.REQUESTED,
        SnapshotState.READING,
        filter='{"$comment": "what differs"}',
        ranges={UUID: RangeProgress(UUID, "shop", "c", len(KEYS))},
        began=TIME,
        verification="5f",
    )
    made.begin(KnownSnapshots(progress or begun, rows=rows or {}, keys=keys))
    return made


async def read(of: Snapshots) -> list[tuple[str, Any]]:
    """The events of the next part, with their keys."""
    (rows,) = await of.read(TIME, briefly=False)
    events = rows.batch.events()
    assert all(is_row(event) for event in events if event.document_key is not None)
    assert all(event.cluster_time == TIME for event in events)
    return [(e.operation_type, e.document_key and e.document_key["_id"]) for e in events]


async def test_a_key_without_a_document_comes_as_a_delete_in_its_turn() -> None:
    server = Holding([{"_id": 5, "n": 1}, {"_id": 2, "n": 2}, {"_id": 1}, {"_id": 3}])
    of = snapshots(server, chunk=3)
    assert await read(of) == [("read", 1), ("delete", "gone"), ("read", 2)]
    assert await read(of) == [("delete", bson.Regex("a")), ("read", 5)]
    assert await read(of) == [("snapshotEnd", None)]
    assert of.progress is not None
    assert (of.progress.state, of.progress.documents) == (SnapshotState.DONE, 5)


async def test_a_part_has_fewer_keys_if_not_all_of_its_documents_come() -> None:
    server = Holding([{"_id": 1}, {"_id": 2.0}, {"_id": 5}], most=2)
    of = snapshots(server, chunk=5)
    assert await read(of) == [("read", 1)]
    assert server.finds == [3, 1]


async def test_another_process_goes_on_after_the_last_key_that_is_handled() -> None:
    server = Holding([])
    first = snapshots(server, chunk=3)
    (rows,) = await first.read(TIME, briefly=False)
    of = snapshots(server, chunk=3, progress=rows.progress(1))
    assert await read(of) == [("delete", "gone"), ("delete", 2.0), ("delete", bson.Regex("a"))]


async def test_keys_that_a_destination_has_already_are_told() -> None:
    last = DocumentId(bson.encode({"_id": 2}))
    of = snapshots(Holding([]), chunk=4, rows={"copy": StoredRows("id", {UUID: last})})
    (rows,) = await of.read(TIME, briefly=False)
    assert rows.already_stored == {"copy": 3}


@pytest.mark.parametrize("state", [SnapshotState.READING, SnapshotState.PLANNED])
async def test_it_ends_if_its_verification_is_not_stored_any_more(state: SnapshotState) -> None:
    of = snapshots(Holding([]), stored=False)
    assert of.progress is not None
    of.progress = replace(of.progress, state=state)
    if state is SnapshotState.PLANNED:
        await of.ready()
    else:
        assert await of.read(TIME, briefly=False) == []
    (rows,) = await of.read(TIME, briefly=False)
    ended = rows.progress(0)
    assert ended.state is SnapshotState.CANCELLED
    assert "verification 5f, whose differences it brings, is not stored" in ended.note
