"""Who is cancelled while the server opens a cursor leaves none there."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tailrace.drivers import CommandDriver
from tailrace.model import Scope
from tailrace.snapshot.server import Find
from tailrace.stream import ChangeStream
from tests.contract.collection import CollectionScene
from tests.contract.streams import DRIVER_NAMES, QUICK, connected
from tests.mongod import ReplicaSet
from tests.mongod.operations import operations

_OPENING_MS = 300


@pytest.fixture(params=DRIVER_NAMES)
def scene(
    request: pytest.FixtureRequest, mongod: ReplicaSet, database: str
) -> Iterator[CollectionScene]:
    with mongod.client() as client:
        scene = CollectionScene(mongod.uri, request.param, database, client)
        scene.collection.insert_many([{"_id": number} for number in range(5)])
        yield scene


@pytest.mark.parametrize("command", ["aggregate", "find"])
async def test_a_cancelled_opening_leaves_no_cursor(
    scene: CollectionScene, mongod: ReplicaSet, command: str
) -> None:
    async def follow(driver: CommandDriver) -> None:
        async with ChangeStream(driver, Scope("c", scene.database, "c"), QUICK):
            await anyio.sleep_forever()

    async def find(driver: CommandDriver) -> None:
        uuid, time = scene.uuid, scene.now
        await driver.find(Find(scene.database, "c", uuid, time, {"batchSize": 2}))

    def at_work() -> list[dict[str, Any]]:
        """The command, while it works, and the cursors of the collection."""
        matching = {"$or": [{"ns": f"{scene.database}.c"}, {f"command.{command}": "c"}]}
        return operations(scene.client, matching, idleCursors=True)

    async with connected(scene.name, scene.uri) as driver:
        await driver.run("admin", {"ping": 1})
        slow = {"blockConnection": True, "blockTimeMS": _OPENING_MS}
        mongod.fail(command, namespace=f"{scene.database}.c", **slow)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow if command == "aggregate" else find, driver)
                while not at_work():  # noqa: ASYNC110 - the server's own
                    await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
            while at_work():  # noqa: ASYNC110 - the server's own
                await anyio.sleep(0.01)
