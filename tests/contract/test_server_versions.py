"""What docs/supported-versions.md says of servers is what the tests do."""

import re
from operator import attrgetter

import pytest
from pymongo import common

from docs.supported_versions import EVERY_VERSION, VERSIONS, ServerVersion, page
from tailrace.compat.questions import QUESTIONS
from tailrace.errors import ConnectionFailed
from tailrace.model import StartPoint
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.aggregate import request
from tests.checkout import ROOT
from tests.contract.streams import (
    DRIVER_NAMES,
    NS,
    ORDERS,
    QUICK,
    connected,
    following,
    ids,
    read,
)
from tests.mongod import ReplicaSet
from tests.scripted import RESUMABLE, ScriptedSet

of_both_drivers = pytest.mark.parametrize("name", DRIVER_NAMES)


@of_both_drivers
@pytest.mark.parametrize("server", VERSIONS, ids=attrgetter("version"))
async def test_a_stream_is_opened_read_and_resumed(
    name: str, scripted: ScriptedSet, server: ServerVersion
) -> None:
    scripted.behave(max_wire_version=server.wire_version)
    options = ChangeStreamOptions(max_await_time_ms=30, comment="why")
    async with following(name, scripted, options) as stream:
        scripted.insert(NS, {"_id": 1})
        assert ids(await read(stream, 1)) == [1]
        scripted.fail("getMore", code=6, labels=(RESUMABLE,))
        scripted.insert(NS, {"_id": 2})
        assert ids(await read(stream, 1)) == [2]
    assert len(scripted.commands("aggregate")) == 2


@of_both_drivers
async def test_an_older_server_is_refused(name: str, scripted: ScriptedSet) -> None:
    scripted.behave(max_wire_version=VERSIONS[0].wire_version - 1)
    async with connected(name, scripted.uri, serverSelectionTimeoutMS=100) as driver:
        session = await driver.start_session()
        with pytest.raises(ConnectionFailed, match=rf"MongoDB {VERSIONS[0].version}"):
            await session.open(request(ORDERS, QUICK, StartPoint()))


def test_the_driver_supports_the_same_versions() -> None:
    assert VERSIONS[0].version == common.MIN_SUPPORTED_SERVER_VERSION
    assert VERSIONS[0].wire_version == common.MIN_SUPPORTED_WIRE_VERSION
    assert VERSIONS[-1].wire_version <= common.MAX_SUPPORTED_WIRE_VERSION


def test_the_real_servers_of_the_tests_are_of_the_tested_release(mongod: ReplicaSet) -> None:
    with mongod.client() as client:
        release = client.admin.command("buildInfo")["version"]
        wire_version = client.admin.command("hello")["maxWireVersion"]
    tested = {each.mongod: each.wire_version for each in VERSIONS if each.mongod}
    assert tested == {release: wire_version}


def test_each_named_test_is_there() -> None:
    for shown in (EVERY_VERSION, *(each for server in VERSIONS for each in server.scripted)):
        file, _, function = shown.test.partition("::")
        assert re.search(rf"^(async )?def {function}\(", (ROOT / file).read_text(), re.M), shown


def test_what_is_scripted_is_asked_of_real_servers() -> None:
    asked = [question.name for question in QUESTIONS]
    assert len({*asked}) == len(asked)
    for shown in (EVERY_VERSION, *(each for server in VERSIONS for each in server.scripted)):
        assert shown.question in asked, shown


def test_the_page_is_that_of_the_table() -> None:
    assert (ROOT / "docs/supported-versions.md").read_text() == page(), "run `make reference`"
