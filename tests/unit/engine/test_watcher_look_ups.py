"""How a watcher's options affect its look-ups."""

from typing import Any

import anyio
import pytest

from tailrace.engine import WatcherState
from tailrace.event.reply import Reply
from tailrace.stream import ChangeStreamOptions, LookUp
from tests.unit.engine.changes import change, token
from tests.unit.engine.scripted_driver import ScriptedDriver
from tests.unit.engine.watching import Destination, Watching

UUID = "0A" * 16
TOKEN = token(1, f"2B022C0100296E5A1004{UUID}46645F69640064{'6' * 24}0004")


class LookingDriver(ScriptedDriver):
    """Finds nothing."""

    def __init__(self) -> None:
        super().__init__(change(1, operation="update") | {"_id": TOKEN.document})
        self.look_ups: list[LookUp] = []

    async def look_up(self, wanted: LookUp) -> Reply:
        self.look_ups.append(wanted)
        await anyio.lowlevel.checkpoint()
        return Reply(b"", ())


@pytest.mark.parametrize(
    ("options", "uuid"),
    [
        ({}, True),
        ({"match_collection_uuid_for_update_lookup": True}, True),
        ({"match_collection_uuid_for_update_lookup": False}, False),
    ],
)
async def test_look_ups_are_for_the_collection_s_uuid_on_the_read_preference(
    options: dict[str, Any], uuid: bool
) -> None:
    audit, driver = Destination(), LookingDriver()
    asked = ChangeStreamOptions(full_document="lookup", read_preference="secondary", **options)
    async with Watching(driver, audit.routed(), options=asked).run() as watching:
        await watching.until_state(WatcherState.CAUGHT_UP)
    (wanted,) = driver.look_ups
    assert wanted.uuid == (bytes.fromhex(UUID) if uuid else None)
    assert wanted.read_preference == "secondary"
