"""A real server process that is killed and started again while changes are written."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect, DuplicateKeyError

from tests.daemon import Daemon, until
from tests.embedded import Embedded
from tests.faults.conftest import QUICK
from tests.faults.load import Load, assert_whole, until_resumed

pytestmark = pytest.mark.integration

Make = Callable[..., Daemon]
HASTE = {"heartbeatFrequencyMS": 500}


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Embedded]:
    server = Embedded(tmp_path / "mortal")
    yield server
    server.stop(signal.SIGKILL)


def once(collection: Collection[dict[str, Any]], number: int) -> None:
    """Inserts a document, however often its server dies: a key comes into being once."""

    def insert() -> bool:
        try:
            collection.insert_one({"_id": number})
        except DuplicateKeyError:
            return True
        except AutoReconnect:
            return False
        return True

    until(insert, f"document {number}")


def write(
    collection: Collection[dict[str, Any]],
) -> Callable[[list[int]], None]:
    def several(numbers: list[int]) -> None:
        for number in numbers:
            once(collection, number)

    return several


@pytest.mark.parametrize(("driver", "times"), [("motor", 3), ("pymongo", 1)])
def test_a_server_that_is_killed(mortal: Embedded, daemon: Make, driver: str, times: int) -> None:
    uri = mortal.uri + QUICK
    run = daemon(uri, mongodb={"uri": uri, "driver": driver}).start()
    with (
        mortal.client(retryWrites=False, **HASTE) as client,
        Load(write(client.shop.orders)) as load,
    ):
        for _ in range(times):
            load.more()
            mortal.stop(signal.SIGKILL)
            until(lambda: run.get("/readyz")[0] == 503, "that it notices")
            mortal.start()
            until(lambda: run.get("/readyz")[0] == 200, "readiness")
        load.more()
    assert run.status()["resumes"] + run.status()["restarts"] >= times
    assert_whole(run, load.written)


def test_a_primary_that_steps_down_and_comes_back(mortal: Embedded, daemon: Make) -> None:
    run = daemon(mortal.uri + QUICK).start()
    with (
        mortal.client(retryWrites=False, **HASTE) as client,
        Load(write(client.shop.orders)) as load,
    ):
        load.more()
        for number, code in enumerate((10107, 91, 11602), start=1):
            labels = ["ResumableChangeStreamError"]
            mortal.fail("getMore", appName="tailrace", errorCode=code, errorLabels=labels)
            until_resumed(run, number)
        client.admin.command({"replSetStepDown": 1, "force": True})
        load.more()
    assert run.status()["restarts"] == 0
    assert_whole(run, load.written)
