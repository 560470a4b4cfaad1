"""What ``parquet`` and ``jsonl`` have written, folded, and compared with the documents."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Regex

from tailrace.destinations.jsonl import JsonlHandlerSettings
from tailrace.destinations.parquet import ParquetHandlerSettings
from tailrace.engine import Handler
from tailrace.errors import ScopeHalted, Unavailable
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END, barrier
from tailrace.handlers.open_handler import open_handler
from tailrace.model.snapshot import DocumentId
from tailrace.testing import Changes
from tests.destinations.comparing import ORDERS, compared
from tests.handlers import OWNER, begin, commit, deliver, opening
from tests.unit.event.documents import EVERY_ID

SETTINGS: Mapping[str, Callable[[Path], Any]] = {
    "bson": lambda path: ParquetHandlerSettings(type="parquet", path=str(path / "lake")),
    "canonical": lambda path: ParquetHandlerSettings(
        type="parquet", path=str(path / "lake"), documents="canonical"
    ),
    "lines": lambda path: JsonlHandlerSettings.model_validate(
        {"type": "jsonl", "path": str(path / "orders.jsonl"), "json": "canonical"}
    ),
    "relaxed": lambda path: JsonlHandlerSettings(type="jsonl", path=str(path / "orders.jsonl")),
}


@dataclass
class Log:
    """A handler that is open. ``exact``: whether its form keeps every type."""

    handler: Handler
    exact: bool

    async def write(self, *events: ChangeEvent) -> None:
        await deliver(self.handler, *events)
        if self.handler.commit is not None:
            await commit(self.handler)


@asynccontextmanager
async def opened(path: Path, form: str) -> AsyncIterator[Log]:
    async with open_handler(opening("log"), SETTINGS[form](path)) as handler:
        if handler.position is not None:
            await begin(handler)
        yield Log(handler, form != "relaxed")


def snapshot(changes: Changes, operation: str, began: Any, **more: Any) -> ChangeEvent:
    listed = {"db": "shop", "coll": "orders", "state": "done"}
    described = {"id": "s", "filter": "", "chosen": [], "began": began, "collections": [listed]}
    fields = {"ns": {"db": "shop", "coll": "orders"}, "snapshot": {**described, **more}}
    return barrier(operation, "s", changes.oplog.now, fields).events()[0]


@pytest.mark.parametrize("form", SETTINGS)
async def test_documents_of_every_type_and_key_are_equal(tmp_path: Path, form: str) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes()
        values = [
            1,
            1.0,
            Int64(1),
            -0.0,
            1e-7,
            float("nan"),
            Decimal128("1.0"),
            Regex("a", "i"),
            None,
        ]
        for number, value in enumerate(values):
            await log.write(
                changes.insert({"_id": f"v{number}", "value": value, "in": {"b": [value]}})
            )
        known = set[bytes]()
        for id in EVERY_ID:
            try:
                known.add(bson.encode({"_id": id}))
                event = changes.insert({"_id": id, "n": 1})
            except ValueError:
                continue  # equal to one before
            await log.write(event)
        assert not await compared(log.handler, changes)


@pytest.mark.parametrize("full_document", [True, False])
@pytest.mark.parametrize("form", SETTINGS)
async def test_changes_of_every_kind_are_folded(
    tmp_path: Path, form: str, full_document: bool
) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes(full_document=full_document)
        await log.write(*(changes.insert({"_id": n, "n": n, "a": [1, 2, 3]}) for n in range(20)))
        await log.write(
            changes.update(1, {"n": Int64(5), "new.b": 1.5}, unset=["a"]),
            changes.update(2, {"a.0": "x"}, truncate={"a": 2}),
            changes.update(1, {"n": 2**40}),
            changes.replace({"_id": 3, "other": 1}),
            changes.delete(4),
            changes.delete(5),
            changes.insert({"_id": 5, "n": 1.0}),
        )
        with changes.transaction():
            events = [changes.update(6, {"n": 1}), changes.delete(6), changes.insert({"_id": 6})]
            events.append(changes.update(7, {"n": -1}))
        await log.write(*events)
        assert not await compared(log.handler, changes)
        changes.update(8, {"n": 8.5})
        changes.delete(9)
        changes.insert({"_id": 21})
        found = await compared(log.handler, changes)
        assert found.different == {8: ["n"]}
        assert (found.missing, found.too_many) == ([21], ['{"_id":{"$numberInt":"9"}}'])


@pytest.mark.parametrize("form", SETTINGS)
async def test_large_documents_are_read_a_few_at_a_time(tmp_path: Path, form: str) -> None:
    changes = Changes()
    async with opened(tmp_path, form) as log:
        for number in range(3):
            await log.write(changes.insert({"_id": number, "text": "x" * 9_000_000}))
        assert log.handler.comparison is not None
        async with log.handler.comparison(OWNER) as comparison:
            keys = [DocumentId(bson.encode({"_id": number})) for number in range(3)]
            held = await comparison.stored(ORDERS, keys)
            assert [row is None for row in held.rows] == [False, False, True]
            assert not held.whole
            held = await comparison.stored(ORDERS, keys[2:])
            assert (held.rows, held.whole) == (
                list(await comparison.expected([changes.read(2)])),
                True,
            )


@pytest.mark.parametrize("form", SETTINGS)
async def test_a_type_that_prints_alike_differs_where_the_form_keeps_types(
    tmp_path: Path, form: str
) -> None:
    async with opened(tmp_path, form) as log:
        changes, other = Changes(), Changes()
        values = [1, 1.0, Int64(1), 0.0]
        others = [1.0, Int64(1), 1, -0.0]
        for number, (value, wrong) in enumerate(zip(values, others, strict=True)):
            changes.insert({"_id": number, "n": value, "same": 1})
            await log.write(other.insert({"_id": number, "n": wrong, "same": 1}))
        found = await compared(log.handler, changes)
        differing = [0, 1, 2, 3] if log.exact else [0, 1, 3]
        assert found.different == {number: ["n"] for number in differing}


@pytest.mark.parametrize("form", SETTINGS)
async def test_an_update_of_an_unknown_document_is_missing_until_an_image_comes(
    tmp_path: Path, form: str
) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes(full_document=False)
        changes.insert({"_id": 1, "n": 1})
        await log.write(changes.update(1, {"n": 2}))
        found = await compared(log.handler, changes)
        assert (found.missing, found.too_many) == ([1], [])
        await log.write(changes.read(1), changes.update(1, {"n": 3}))
        assert not await compared(log.handler, changes)


@pytest.mark.parametrize("form", SETTINGS)
async def test_what_comes_again_has_no_effect(tmp_path: Path, form: str) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes()
        first = [changes.insert({"_id": n, "n": n}) for n in range(4)]
        second = [changes.update(1, {"n": 9}), changes.delete(2)]
        moved = changes.rename("moved")
        moved_to = changes.elsewhere("moved")
        third = [changes.insert({"_id": 1}), moved_to.update(1, {"n": 10})]
        await log.write(*first, *second, moved, *third)
        for again in (first, [moved], third, first, second):
            await log.write(*again)
        assert not await compared(log.handler, changes)
        assert not await compared(log.handler, moved_to, Namespace("shop", "moved"))


@pytest.mark.parametrize("form", SETTINGS)
async def test_a_drop_that_comes_again_spares_what_came_after_it(tmp_path: Path, form: str) -> None:
    """Documents that a rename brought, too, though they were inserted before the drop."""
    async with opened(tmp_path, form) as log:
        changes = Changes()
        older = changes.elsewhere("older")
        first = [changes.insert({"_id": 1}), changes.drop_database()]
        second = [changes.insert({"_id": 2}), changes.drop_database()]
        await log.write(*first, *second, *first, second[0])
        assert not await compared(log.handler, changes)
        await log.write(changes.insert({"_id": 3}), older.insert({"_id": 4}))
        dropped = older.drop()
        await log.write(dropped, changes.rename("older"), dropped, second[1])
        assert not await compared(log.handler, older, Namespace("shop", "older"))


@pytest.mark.parametrize("form", SETTINGS)
async def test_the_end_of_a_snapshot_is_of_documents_that_were_there_while_it_ran(
    tmp_path: Path, form: str
) -> None:
    """A rename brought them meanwhile. If the end comes again, those that came later stay."""
    async with opened(tmp_path, form) as log:
        orders = Changes()
        before, carts = orders.elsewhere("before"), orders.elsewhere("carts")
        await log.write(before.insert({"_id": 1}), before.insert({"_id": 2}))
        await log.write(carts.insert({"_id": 3}))
        began = orders.oplog.now
        before.delete(2)  # the history is lost
        await log.write(snapshot(orders, SNAPSHOT_BEGIN, began, chosen=["orders"]))
        await log.write(before.rename("orders"), orders.read(1))
        end = snapshot(orders, SNAPSHOT_END, began, chosen=["orders"])
        await log.write(end)
        assert not await compared(log.handler, orders)
        orders.drop()
        await log.write(carts.rename("orders"), end)
        assert not await compared(log.handler, orders)


@pytest.mark.parametrize("form", SETTINGS)
async def test_drops_and_renames_move_and_remove_documents(tmp_path: Path, form: str) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes()
        archive, more = changes.elsewhere("archive"), changes.elsewhere("more")
        await log.write(
            changes.insert({"_id": 1}), archive.insert({"_id": 2}), more.insert({"_id": 3})
        )
        dropped = archive.drop()
        await log.write(dropped, changes.rename("archive"))
        assert not await compared(log.handler, changes)
        assert not await compared(log.handler, archive, Namespace("shop", "archive"))
        await log.write(archive.update(1, {"n": 1}), changes.insert({"_id": 1, "new": True}))
        assert not await compared(log.handler, changes)
        assert not await compared(log.handler, archive, Namespace("shop", "archive"))
        await log.write(changes.drop_database())
        assert not await compared(log.handler, changes)
        assert not await compared(log.handler, more, Namespace("shop", "more"))


@pytest.mark.parametrize(
    ("more", "swept"), [({}, True), ({"filter": "{}"}, False), ({"chosen": ["orders"]}, True)]
)
@pytest.mark.parametrize("form", SETTINGS)
async def test_a_whole_snapshot_removes_what_it_did_not_name(
    tmp_path: Path, form: str, more: Mapping[str, Any], swept: bool
) -> None:
    async with opened(tmp_path, form) as log:
        changes = Changes()
        await log.write(*(changes.insert({"_id": n, "n": n}) for n in range(5)))
        changes.lose(2)
        began = changes.oplog.now
        await log.write(
            snapshot(changes, SNAPSHOT_BEGIN, began, **more),
            changes.read(0),
            changes.read(1),
            changes.read(4),
            changes.update(3, {"n": 0}),
            snapshot(changes, SNAPSHOT_END, began, **more),
        )
        found = await compared(log.handler, changes)
        assert found.too_many == ([] if swept else ['{"_id":{"$numberInt":"2"}}'])
        assert not found.different


@pytest.mark.parametrize("form", SETTINGS)
async def test_what_was_removed_is_not_guessed(tmp_path: Path, form: str) -> None:
    changes = Changes()
    async with opened(tmp_path, form) as log:
        await log.write(changes.insert({"_id": 1}))
        if form in ("lines", "relaxed"):
            os.rename(tmp_path / "orders.jsonl", tmp_path / "orders.jsonl.1")
        else:
            (tmp_path / "lake" / "orders" / "seg-000000000000.parquet").unlink()
        await log.write(changes.insert({"_id": 2}))
        with pytest.raises(ScopeHalted, match=r"shop\.orders in it are not known"):
            await compared(log.handler, changes)
        began = changes.oplog.now
        await log.write(snapshot(changes, SNAPSHOT_BEGIN, began), changes.read(1), changes.read(2))
        await log.write(snapshot(changes, SNAPSHOT_END, began))
        assert not await compared(log.handler, changes)


@pytest.mark.parametrize("form", SETTINGS)
async def test_what_is_written_meanwhile_is_folded_before_each_answer(
    tmp_path: Path, form: str
) -> None:
    changes = Changes()
    async with opened(tmp_path, form) as log:
        await log.write(changes.insert({"_id": 1, "n": 1}))
        assert log.handler.comparison is not None
        async with log.handler.comparison(OWNER) as comparison:
            keys = [DocumentId(bson.encode({"_id": n})) for n in (1, 2)]
            before = await comparison.stored(ORDERS, keys)
            assert [row is None for row in before.rows] == [False, True]
            last = changes.insert({"_id": 2, "n": 2})
            await log.write(last, changes.update(1, {"n": 2}))
            if form in ("lines", "relaxed"):
                os.rename(tmp_path / "orders.jsonl", tmp_path / "old")
                await log.write(changes.delete(1))
            after = await comparison.stored(ORDERS, keys)
            expected = await comparison.expected([changes.read(2)])
            assert list(expected) == [after.rows[1]]
            if form in ("lines", "relaxed"):
                assert (after.rows[0], after.position) == (None, None)
                os.truncate(tmp_path / "orders.jsonl", 0)
                with pytest.raises(Unavailable, match="was cut"):
                    await comparison.stored_keys(ORDERS, None, 1)
            else:
                assert after.position is not None
                assert before.position is not None
                assert after.position.time == changes.oplog.now != before.position.time
