"""Collections are planned and read in chunks on mongod, whatever the type of their ``_id``."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import BulkWriteError
from structlog.testing import capture_logs

from tailrace.event.codec import CODEC
from tailrace.model import Scope, SnapshotProgress
from tailrace.model.snapshot import DocumentId, RangeProgress, RangeState, SnapshotMode
from tailrace.snapshot.chunk import Chunk, read_chunk
from tailrace.snapshot.limits import ChunkLimit
from tailrace.snapshot.plan import found_again, plan
from tests.contract.streams import connected
from tests.mongod import Client, ReplicaSet
from tests.unit.event.documents import EVERY_ID

# Types that the server does not accept as `_id`.
IDS = [value for name, value in EVERY_ID.items() if name not in ("array", "regex", "reference")]
IDS += [*range(20), *(Int64(2**40 + n) for n in range(5)), *(n / 7 for n in range(5))]
IDS += [*(f"t{n}" for n in range(20)), "A", "b", "C", *(ObjectId() for _ in range(10)), ""]
IDS += [{"a": n} for n in range(5)] + [{"a": {"$deep": n}} for n in range(2)]
IDS += [Decimal128("1E+6000"), Code("y"), Code("y", {"a": 2}), Timestamp(5, 5), False]


@dataclass
class Scene:
    client: Client
    uri: str
    database: str
    parallel: int = 1

    @property
    def db(self) -> Any:
        return self.client[self.database].with_options(codec_options=CODEC)

    @property
    def now(self) -> Timestamp:
        time = self.client.admin.command("ping")["operationTime"]
        assert isinstance(time, Timestamp)
        return time

    async def plan(
        self, collection: str | None = None, *chosen: str, cluster: bool = False
    ) -> SnapshotProgress:
        scope = Scope("s") if cluster else Scope("s", self.database, collection)
        asked = SnapshotProgress(
            "5f3a", SnapshotMode.REQUESTED, collections=chosen, parallel=self.parallel
        )
        async with connected("pymongo", self.uri) as driver:
            return await plan(driver, scope, asked)

    async def range_of(self, collection: str) -> RangeProgress:
        (found,) = (await self.plan(collection)).ranges.values()
        return found

    async def chunks(self, of: RangeProgress, most: int, **options: Any) -> list[Chunk]:
        """All chunks of a range, read as of now."""
        found: list[Chunk] = []
        time = self.now
        async with connected("pymongo", self.uri) as driver:
            while not (found and found[-1].ends):
                chunk = await read_chunk(driver, of, time, ChunkLimit(most), **options)
                of = replace(of, last=chunk.last or of.last)
                found.append(chunk)
        return found


@pytest.fixture
def scene(mongod: ReplicaSet, database: str) -> Iterator[Scene]:
    with mongod.client() as client:
        yield Scene(client, mongod.uri, database)


def documents(chunks: list[Chunk]) -> list[Any]:
    found = []
    for reply in (reply for chunk in chunks for reply in chunk.replies):
        each = iter(reply.bounds)
        for begin, end in zip(each, each, strict=True):
            found.append(bson.decode(reply.buffer[begin:end], CODEC))
    return found


def shown(values: list[Any]) -> list[str]:
    return list(map(repr, values))


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with a collation": {"collation": {"locale": "en", "strength": 2}},
    "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [1, 7, 1000])
async def test_every_document_comes_once_in_the_order_of_ids(
    scene: Scene, kind: str, most: int
) -> None:
    collection = scene.db.create_collection("c", **KINDS[kind])
    ids = [each for each in IDS if not isinstance(each, Code)] if kind == "clustered" else IDS
    with suppress(BulkWriteError):  # some ids are equal
        collection.insert_many([{"_id": value} for value in ids], ordered=False)
    expected = list(collection.find().sort("_id", 1))
    assert len(expected) > 80
    chunks = await scene.chunks(await scene.range_of("c"), most)
    assert shown(documents(chunks)) == shown(expected)
    assert sum(chunk.scanned for chunk in chunks) == len(expected)
    assert all(chunk.scanned == most for chunk in chunks[:-1])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_filter_leaves_documents_out_and_chunks_stay_short(scene: Scene, kind: str) -> None:
    collection = scene.db.create_collection("c", **KINDS[kind])
    collection.create_index("n")
    collection.insert_many([{"_id": n, "n": n % 50} for n in range(500)])
    chunks = await scene.chunks(await scene.range_of("c"), 100, matching={"n": {"$in": [7, 8]}})
    assert [each["_id"] for each in documents(chunks)] == [
        n for n in range(500) if n % 50 in (7, 8)
    ]
    assert [chunk.documents for chunk in chunks] == [4, 4, 4, 4, 4, 0]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_range_ends_where_it_is_said(scene: Scene, kind: str) -> None:
    collection = scene.db.create_collection("c", **KINDS[kind])
    collection.insert_many([{"_id": n} for n in range(20)] + [{"_id": "t"}])
    after, until = (DocumentId(bson.encode({"_id": n})) for n in (4, 11))
    part = replace(await scene.range_of("c"), last=after, until=until)
    for matching in (None, {}):
        chunks = await scene.chunks(part, 3, matching=matching)
        assert [each["_id"] for each in documents(chunks)] == [5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_large_collection_is_cut_into_ranges(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.snapshot.plan.RANGE_DOCUMENTS", 10)
    collection = scene.db.create_collection("c", **KINDS[kind])
    scene.db.small.insert_many([{"_id": n} for n in range(19)])
    ids = [*range(300), *(f"t{n}" for n in range(300)), *(n + 0.5 for n in range(300))]
    collection.insert_many([{"_id": each} for each in ids])
    expected = [each["_id"] for each in collection.find(hint="_id_").sort("_id")]
    scene.parallel = 4
    planned = await scene.plan()
    parts = [each for each in planned.ranges.values() if each.collection == "c"]
    assert len(planned.ranges) - len(parts) == 1
    assert len(parts) == (1 if kind == "clustered" else 4)
    assert sum(part.estimate for part in parts) == len(ids)
    found = [documents(await scene.chunks(part, 7)) for part in parts]
    assert [each["_id"] for part in found for each in part] == expected
    assert len(parts) == 1 or all(100 < len(part) < 400 for part in found)
    assert {each.collection: each.estimate for each in planned.by_collection} == {
        "c": len(ids),
        "small": 19,
    }


async def test_cuts_at_db_pointers_lose_and_repeat_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver decodes a DBPointer to a DBRef, which has another place in the order of ids."""
    monkeypatch.setattr("tailrace.snapshot.plan.RANGE_DOCUMENTS", 10)
    pointer = [b"\x0c_id\0" + b"\x02\0\0\0a\0" + ObjectId().binary for _ in range(60)]
    raw = [(len(each) + 5).to_bytes(4, "little") + each + b"\0" for each in pointer]
    scene.db.c.insert_many([RawBSONDocument(each) for each in raw])
    scene.db.c.insert_many([{"_id": n} for n in range(20)])
    scene.parallel = 4
    planned = await scene.plan("c")
    assert len(planned.ranges) == 4
    counts = [len(documents(await scene.chunks(part, 7))) for part in planned.ranges.values()]
    assert sum(counts) == 80
    assert min(counts) > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_chunk_looks_at_its_own_documents_only(scene: Scene, kind: str) -> None:
    collection = scene.db.create_collection("c", **KINDS[kind])
    collection.insert_many([{"_id": f"{n:05}"} for n in range(5000)])
    scene.db.command("profile", 2)
    last, until = (DocumentId(bson.encode({"_id": each})) for each in ("04000", "04007"))
    part = replace(await scene.range_of("c"), last=last)
    if kind != "clustered":
        part = replace(part, until=until)
    async with connected("pymongo", scene.uri) as driver:
        await read_chunk(driver, part, scene.now, ChunkLimit(10))
    scene.db.command("profile", 0)
    seen = scene.db["system.profile"].find_one({"op": "query", "ns": f"{scene.database}.c"})
    assert seen["docsExamined"] <= 12
    assert not seen.get("hasSortStage")


async def test_an_empty_collection_ends_at_once(scene: Scene) -> None:
    scene.db.create_collection("c")
    (chunk,) = await scene.chunks(await scene.range_of("c"), 10)
    assert (chunk.documents, chunk.last, chunk.size, chunk.ends) == (0, None, 0, True)


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Scene]:
    """A server whose cache has room for large documents."""
    server = ReplicaSet(tmp_path / "roomy", flags={"--wiredTigerCacheSizeGB": "2"})
    with server.client() as client:
        yield Scene(client, server.uri, "shop")
    server.stop()


async def test_a_chunk_has_few_documents_of_16_megabytes(roomy: Scene) -> None:
    """Such a chunk has few documents, whatever was asked for, so memory is bounded."""
    large = "x" * (16 * 1024 * 1024 - 50)
    for kind, options in KINDS.items():
        collection = roomy.db.create_collection(kind, **options)
        collection.insert_many([{"_id": n, "t": "small" if n < 2 else large} for n in range(5)])
        for matching in (None, {}):
            chunks = await roomy.chunks(await roomy.range_of(kind), 100, matching=matching)
            assert [each["_id"] for each in documents(chunks)] == list(range(5))
            assert max(chunk.size for chunk in chunks) < 17 * 1024 * 1024
            assert sum(chunk.scanned for chunk in chunks) >= 5


@pytest.mark.parametrize("name", ["a.b", "ü €", "c'\"\\", "x" * 200, " c "])
async def test_collections_of_odd_names_are_read(scene: Scene, name: str) -> None:
    scene.db[name].insert_one({"_id": 1})
    (part,) = (await scene.plan()).ranges.values()
    assert (part.collection, part.estimate) == (name, 1)
    assert documents(await scene.chunks(part, 10)) == [{"_id": 1}]


async def test_what_cannot_be_read_is_refused_with_a_word(scene: Scene) -> None:
    scene.db.c.insert_many([{"_id": n} for n in range(3)])
    scene.db.create_collection("view", viewOn="c", pipeline=[])
    scene.db.create_collection("times", timeseries={"timeField": "t"})
    scene.db.create_collection("capped", capped=True, size=10_000)
    with capture_logs() as logs:
        found = await scene.plan()
    listed = {each.collection: (each.state.value, each.estimate) for each in found.ranges.values()}
    assert listed == {"c": ("reading", 3), "capped": ("refused", 0)}  # this collection has changes
    refused = {log["collection"]: log["reason"] for log in logs}
    assert {name.partition(".")[2] for name in refused} == {"view", "times", "capped"}
    (view,) = (await scene.plan("view")).ranges.values()
    assert view.state is RangeState.REFUSED
    assert "view" in view.note
    chosen = await scene.plan(None, "capped", "c")
    assert {each.collection: each.state for each in chosen.ranges.values()} == {
        "c": RangeState.READING,
        "capped": RangeState.REFUSED,
    }


async def test_a_cluster_has_the_collections_of_all_databases(scene: Scene) -> None:
    scene.db.c.insert_one({"_id": 1})
    found = {each.database for each in (await scene.plan(cluster=True)).ranges.values()}
    assert scene.database in found
    assert not found & {"admin", "local", "config"}


async def test_a_renamed_collection_is_found_by_its_uuid(scene: Scene) -> None:
    scene.db.c.insert_one({"_id": 1})
    part = await scene.range_of("c")
    scene.db.c.rename("other")
    async with connected("pymongo", scene.uri) as driver:
        found = await found_again(driver, part)
        assert found is not None
        assert found.name == "other"
        scene.db.other.drop()
        assert await found_again(driver, part) is None


async def test_a_scope_without_its_collection_has_nothing(scene: Scene) -> None:
    assert (await scene.plan("missing")).ranges == {}
