"""A change stream on a driver and a server: the commands sent, the events returned, the end."""

import asyncio
from typing import Any

import pytest
from bson import Int64

from tailrace.errors import CommandFailed
from tailrace.model import Scope
from tailrace.stream import ChangeStreamOptions
from tailrace.stream.aggregate import OPEN_MS
from tests.contract.streams import DRIVER_NAMES, NS, after, following, ids, read
from tests.scripted import ScriptedSet

pytestmark = pytest.mark.parametrize("name", DRIVER_NAMES)

OPTIONS = ChangeStreamOptions(
    pipeline=({"$match": {"operationType": {"$ne": "noop"}}},),
    full_document="updateLookup",
    full_document_before_change="whenAvailable",
    show_expanded_events=True,
    match_collection_uuid_for_update_lookup=True,
    batch_size=7,
    max_await_time_ms=40,
    collation={"locale": "de"},
    comment={"for": "the log"},
    split_large_events=False,
)
LONG = ChangeStreamOptions(max_await_time_ms=60_000)
"""A read still waits when its connection is cut."""


@pytest.mark.parametrize(
    ("scope", "database", "target", "collection", "seen"),
    [
        (Scope("s", "shop", "orders"), "shop", "orders", "orders", [1]),
        (Scope("s", "shop"), "shop", 1, "$cmd.aggregate", [1, 2]),
        (Scope("s"), "admin", 1, "$cmd.aggregate", [1, 2, 3]),
    ],
    ids=["collection", "database", "cluster"],
)
async def test_each_scope_sees_its_events_and_asks_for_them_where_the_server_said(
    name: str,
    scripted: ScriptedSet,
    scope: Scope,
    database: str,
    target: Any,
    collection: str,
    seen: list[int],
) -> None:
    async with following(name, scripted, scope=scope) as stream:
        for number, namespace in enumerate(["shop.orders", "shop.items", "crm.people"], start=1):
            scripted.insert(namespace, {"_id": number})
        assert ids(await read(stream, len(seen))) == seen
    (opened,) = scripted.commands("aggregate")
    assert (opened.database, opened.document["aggregate"]) == (database, target)
    assert ("allChangesForCluster" in (opened.change_stream or {})) is (scope.kind == "cluster")
    for command in scripted.commands("getMore"):
        assert (command.database, command.document["collection"]) == (database, collection)
    (killed,) = scripted.commands("killCursors")
    assert (killed.database, killed.document["killCursors"]) == (database, collection)


async def test_options_are_sent_where_the_specification_says(
    name: str, scripted: ScriptedSet
) -> None:
    async with following(name, scripted, OPTIONS) as stream:
        await stream.next_batch()
        await stream.next_batch()
    (opened,), more = scripted.commands("aggregate"), scripted.commands("getMore")[0]
    assert opened.change_stream == {
        "fullDocument": "updateLookup",
        "fullDocumentBeforeChange": "whenAvailable",
        "showExpandedEvents": True,
        "matchCollectionUUIDForUpdateLookup": True,
    }
    assert opened.document["pipeline"][1:] == list(OPTIONS.pipeline)
    assert opened.document["cursor"] == {"batchSize": 0}
    assert opened.document["collation"] == {"locale": "de"}
    assert opened.document["comment"] == more.document["comment"] == {"for": "the log"}
    assert opened.document["maxTimeMS"] == OPEN_MS
    assert (more.document["maxTimeMS"], more.document["batchSize"]) == (40, 7)
    assert isinstance(more.document["getMore"], Int64)
    added_by_drivers = {"lsid", "$db", "$clusterTime", "$readPreference"}
    assert more.document.keys() - added_by_drivers == {
        *("getMore", "collection", "batchSize", "maxTimeMS", "comment")
    }


async def test_no_server_time_limit_ends_the_scan_of_old_oplog(
    name: str, scripted: ScriptedSet
) -> None:
    scripted.behave(scan_seconds=0.3, default_max_time_ms=50)
    tokens = scripted.insert_many(NS, [1, 2])
    async with following(name, scripted, start=after(tokens[0])) as stream:
        assert ids(await read(stream, 1)) == [2]
    assert len(scripted.commands("aggregate")) == 1


@pytest.mark.parametrize("on", ["reading", "aggregate"])
async def test_a_lost_history_goes_up_from_either_command(
    name: str, scripted: ScriptedSet, on: str
) -> None:
    scripted.behave(history_lost_on=on)
    old = scripted.insert(NS, {"_id": 1})
    scripted.insert(NS, {"_id": 2})
    scripted.truncate_oplog()

    async def follow() -> None:
        async with following(name, scripted, start=after(old)) as stream:
            await read(stream, 1)

    with pytest.raises(CommandFailed) as raised:
        await follow()
    assert raised.value.code == 286
    assert len(scripted.commands("aggregate")) == 1
    assert len(scripted.commands("getMore")) == (on != "aggregate")


@pytest.mark.parametrize("operation", ["drop", "rename", "dropDatabase"])
async def test_an_invalidate_is_the_last_event_and_ends_the_iteration(
    name: str, scripted: ScriptedSet, operation: str
) -> None:
    scripted.insert(NS)
    async with following(name, scripted) as stream:
        if operation == "drop":
            scripted.drop(NS)
        elif operation == "rename":
            scripted.rename(NS, "shop.archive")
        else:
            scripted.drop_database("shop", "orders")
        seen: list[str] = []
        while not stream.invalidated:
            seen += [event.operation_type for event in (await stream.next_batch()).events()]
        assert seen == ["rename" if operation == "rename" else "drop", "invalidate"]
        assert stream.invalidated
    assert scripted.commands("killCursors") == []


async def test_a_lost_connection_is_resumed(name: str, scripted: ScriptedSet) -> None:
    async with following(name, scripted, LONG) as stream:
        await stream.next_batch()
        waiting = asyncio.create_task(read(stream, 1))
        await scripted.until("getMore")
        scripted.cut_connections(0)
        scripted.insert(NS, {"_id": 1})
        assert ids(await waiting) == [1]
    assert len(scripted.commands("aggregate")) == 2
