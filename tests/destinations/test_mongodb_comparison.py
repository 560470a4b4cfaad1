"""The copies of MongoDB compared with documents: nothing equal differs, and every damage does."""

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from tailrace import Unavailable
from tailrace.engine import Handler
from tailrace.event.snapshot_events import barrier
from tailrace.testing import Changes
from tests.destinations.calling import opened, send
from tests.destinations.comparing import ORDERS, Found, compared, read_in_parts
from tests.destinations.copies import odd_documents
from tests.destinations.mongodb import Target
from tests.destinations.test_postgresql_values import IDS
from tests.handlers import OWNER, deliver

NUMBERS = (1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.0"), 0.0, -0.0, True, "1")


async def begun(handler: Handler) -> Handler:
    assert handler.position is not None
    await handler.position.load(OWNER)
    return handler


async def test_documents_of_every_kind_are_equal_to_their_copies(
    target: Target, changes: Changes
) -> None:
    documents: list[Any] = [{"_id": each, "n": 1} for each in IDS if not isinstance(each, Regex)]
    documents += [{"_id": f"n{n}", "n": each} for n, each in enumerate(NUMBERS)]
    documents += [{"_id": {"$ref": "b", "$id": 1, "a": 2}}, {"_id": "time", "t": Timestamp(0, 0)}]
    fields = {"leave_out": ["secret"], "rename": {"n": "number"}}
    async with opened({**target.handler, "fields": fields}) as handler:
        await begun(handler)
        inserted = [changes.insert({**each, "secret": 1}) for each in documents]
        await deliver(handler, *inserted)
        found = await compared(handler, changes)
        assert not found, found
        assert found.position is not None


async def test_odd_field_names_are_compared_byte_by_byte(target: Target, changes: Changes) -> None:
    async with opened(target.handler) as handler:
        await begun(handler)
        for each in odd_documents():
            await deliver(handler, changes.insert(RawBSONDocument(each)))
        found = await compared(handler, changes)
        assert not found, found


async def test_a_sweep_removes_what_has_a_long_id(target: Target, changes: Changes) -> None:
    """The driver gives documents of 4 KiB and more as views."""
    async with opened(target.handler) as handler:
        await begun(handler)
        await deliver(handler, changes.insert({"_id": "a" * 5000}), changes.insert({"_id": 1}))
        changes.lose("a" * 5000)
        listed = {"db": "shop", "coll": "orders", "state": "done"}
        snapshot = {"id": "s", "filter": "", "collections": [listed]}
        fields = {"ns": {"db": "shop", "coll": "orders"}, "snapshot": snapshot}
        begin, end = (
            barrier(operation, "s", changes.oplog.now, fields).events()[0]
            for operation in ("snapshotBegin", "snapshotEnd")
        )
        await send(handler, begin, changes.read(1), end)
        assert not await compared(handler, changes)


async def test_large_rows_are_not_read_at_once(target: Target, changes: Changes) -> None:
    async with opened(target.handler) as handler:
        await read_in_parts(await begun(handler), changes)


async def test_without_a_copy_nothing_is_there(target: Target, changes: Changes) -> None:
    async with opened(target.handler) as handler:
        changes.insert({"_id": 1})
        assert await compared(handler, changes) == Found(missing=[1])


async def test_an_outbox_cannot_be_asked(outbox: Target) -> None:
    async with opened(outbox.handler) as handler:
        assert handler.comparison is None


MORE = {"text": "x", "is": True, "zero": 0.0, "in": {"a": 1, "b": 1}}
REST = {name: f"${name}" for name in ("n", "text", "is", "zero")}
CHANGED: dict[str, tuple[Any, list[str]]] = {
    "a value": ({"$set": {"n": 9999}}, ["n"]),
    "a field is removed": ({"$unset": {"text": ""}}, ["text"]),
    "a field is added": ({"$set": {"more": None}}, ["more"]),
    "an int is a double": ([{"$set": {"n": {"$toDouble": "$n"}}}], ["n"]),
    "an int is a long": ([{"$set": {"n": {"$toLong": "$n"}}}], ["n"]),
    "an int is a decimal": ([{"$set": {"n": {"$toDecimal": "$n"}}}], ["n"]),
    "an int is a text": ([{"$set": {"n": {"$toString": "$n"}}}], ["n"]),
    "true is one": ({"$set": {"is": 1}}, ["is"]),
    "a zero has another sign": ({"$set": {"zero": -0.0}}, ["zero"]),
    "a value within": ({"$set": {"in.b": 2}}, ["in.b"]),
    "fields change places": ([{"$replaceWith": {"_id": "$_id", "in": "$in", **REST}}], []),
    "another document's": ([{"$set": {"n": 0, "text": "y"}}], ["n", "text"]),
}
"""By name, what somebody does to copies, and the fields that differ."""


async def test_a_thousand_sabotaged_copies_are_all_found(target: Target, changes: Changes) -> None:
    """Each kind of damage is done to 80 copies. The order of fields counts, too."""
    async with opened(target.handler) as handler:
        await begun(handler)
        await deliver(handler, *[changes.insert({"_id": n, "n": n, **MORE}) for n in range(1500)])
        ranges = (range(begin, begin + 80) for begin in range(100, 1500, 80))
        different: dict[Any, list[str]] = {}
        with target.client() as client:
            copies = client[target.database].orders
            for update, fields in CHANGED.values():
                ids = next(ranges)
                copies.update_many({"_id": {"$in": [*ids]}}, update)
                different |= dict.fromkeys(ids, fields)
            missing = [*next(ranges)]
            copies.delete_many({"_id": {"$in": missing}})
            copies.insert_many([{"_id": f"more {n}"} for n in range(80)])
            copies.insert_many([{"_id": bson.ObjectId()} for n in range(80)])
        found = await compared(handler, changes)
        assert found.different == different
        assert found.missing == missing
        assert len(found.too_many) == 160


@pytest.mark.usefixtures("abandoned_connects")
async def test_a_cluster_that_is_down_is_waited_for(target: Target, changes: Changes) -> None:
    async with opened(target.handler) as handler:
        await begun(handler)
        await deliver(handler, changes.insert({"_id": 1}))
        assert handler.comparison is not None
        async with handler.comparison(OWNER) as comparison:
            target.stop()
            with pytest.raises(Unavailable):
                await comparison.stored(ORDERS, [])
        with pytest.raises(Unavailable):
            await compared(handler, changes)
        target.start()
        assert not await compared(handler, changes)
