"""What the server of the harness answers about collections."""

from typing import Any

import pytest
from bson.timestamp import Timestamp

from tailrace.errors import CommandFailed
from tailrace.snapshot.server import Find
from tailrace.testing import Changes
from tailrace.testing.snapshot_server import MemorySnapshotServer


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["orders", "more"]),
        ({"filter": {}}, ["orders", "more"]),
        ({"filter": {"name": "more"}}, ["more"]),
    ],
)
async def test_collections_are_listed_with_and_without_a_filter(
    more: dict[str, Any], names: list[str]
) -> None:
    changes = Changes()
    changes.insert({"_id": 1})
    changes.elsewhere("more").insert({"_id": 1})
    server = MemorySnapshotServer(changes.oplog)
    reply = await server.run("shop", {"listCollections": 1, "cursor": {}, **more})
    assert [each["name"] for each in reply["cursor"]["firstBatch"]] == names


async def test_a_collection_is_not_read_as_of_a_time_before_it_was_made_or_renamed() -> None:
    """As mongod answers: see ``tests/contract/test_snapshot_find.py``."""
    changes = Changes()
    before = changes.oplog.now
    changes.insert({"_id": 1})
    changes.insert({"_id": 2})
    server, (of,) = MemorySnapshotServer(changes.oplog), changes.oplog.collections.values()

    async def read(name: str, time: Timestamp) -> int:
        find = Find("shop", name, of.uuid, time, {"filter": {}, "limit": 9})
        return sum(map(len, await server.find(find)))

    with pytest.raises(CommandFailed, match="SnapshotUnavailable"):
        await read("orders", before)
    now = changes.oplog.now
    assert await read("orders", now) == 2
    changes.rename("archive")
    with pytest.raises(CommandFailed, match="SnapshotUnavailable"):
        await read("archive", now)
    assert await read("archive", changes.oplog.now) == 2
