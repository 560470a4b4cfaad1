"""Chunks that the server reads slowly become smaller, and changes never wait long for one."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tailrace.snapshot.filter import text_of
from tailrace.snapshot.options import SnapshotOptions
from tests.snapshots import Scene

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
}


def slow(milliseconds: str, matching: str = "true") -> str:
    """A filter that takes this long for each document ``d``."""
    body = f"function(d) {{ sleep({milliseconds}); return {matching}; }}"
    return text_of({"$expr": {"$function": {"body": body, "args": ["$$ROOT"], "lang": "js"}}})


def slowest(scene: Scene) -> int:
    """The ms of the longest find of the collection."""
    finds = scene.db["system.profile"].find({"op": "query", "ns": f"{scene.database}.c"})
    return max(each["millis"] for each in finds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("matching", ["true", "d._id % 300 == 7"])
async def test_a_slow_filter_gets_small_chunks_to_the_end(
    scene: Scene, kind: str, matching: str
) -> None:
    scene.db.create_collection("c", **KINDS[kind])
    scene.db.c.insert_many([{"_id": n} for n in range(900)])
    scene.db.command("profile", 2)
    options = SnapshotOptions(initial=True, filter=slow("4", matching))
    copy = scene.copy("c", options=options)
    async with copy.run():
        await copy.until_done()
    scene.db.command("profile", 0)
    expected = range(900) if matching == "true" else [7, 307, 607]
    assert [(row.document_key or {})["_id"] for row in copy.recorder.rows] == list(expected)
    assert slowest(scene) < 1000


async def test_a_document_slower_than_a_chunk_is_read_alone(scene: Scene) -> None:
    scene.db.c.insert_many([{"_id": n} for n in range(20)])
    options = SnapshotOptions(initial=True, filter=slow("d._id == 11 ? 1500 : 0"))
    copy = scene.copy("c", options=options)
    with capture_logs() as logs:
        async with copy.run():
            await copy.until_done()
    assert len(copy.recorder.rows) == 20
    failed = [log["error"] for log in logs if log["event"] == "snapshot.chunk_failed"]
    assert any("MaxTimeMSExpired" in each for each in failed)
