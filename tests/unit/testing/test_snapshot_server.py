"""What the server of the harness answers about collections."""

from typing import Any

import pytest

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
