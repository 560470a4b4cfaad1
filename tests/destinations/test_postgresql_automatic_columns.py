"""``columns: auto`` of PostgreSQL: columns appear with the fields of documents."""

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import anyio
import psycopg
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from structlog.testing import capture_logs

from tailrace import Fenced, Unavailable
from tailrace.errors import ConfigurationError, ScopeHalted
from tailrace.event import Namespace
from tailrace.testing import Changes, Harness
from tests.destinations.comparing import compared
from tests.destinations.postgresql_store import ORDERS, Store, begin
from tests.handlers import deliver

ID = ObjectId("65a0b0c00000000000000001")
AT = datetime(2026, 11, 27, tzinfo=UTC)
UUID4 = UUID("12345678-1234-4234-8234-123456789012")
TYPES = """
    SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = {}::regclass AND attnum > 5 AND NOT attisdropped
"""


def types(store: Store, table: str = "orders") -> dict[str, str]:
    """The columns beside our own five."""
    return dict(store.server.query(f"{TYPES.format(repr(table))}"))


async def test_fields_become_columns_of_their_types(store: Store, changes: Changes) -> None:
    handler = await store.opened(ORDERS, columns="auto")
    elsewhere = await store.opened(ORDERS, columns="auto")  # it knows of no column
    first = {"_id": ID, "total": 5, "is": True, "at": AT, "price": Decimal128("1.50"), "of": UUID4}
    first |= {"of": Binary.from_uuid(UUID4), "more": [1], "under": {"a": 1}, "none": None}
    with capture_logs() as logs:
        await deliver(handler, changes.insert(first), changes.insert({"_id": "b", "ratio": 1}))
        await deliver(handler, changes.insert({"_id": "c", "ratio": 2, "Total%": 0.5, 'a"b': "x"}))
    assert types(store) == {
        "_id": "text",
        "at": "timestamp with time zone",
        "is": "boolean",
        "of": "uuid",
        "price": "numeric",
        "ratio": "bigint",
        "total": "bigint",
        "Total%": "double precision",
        'a"b': "text",
    }
    added = [each["columns"] for each in logs if each["event"] == "columns.added"]
    assert [list(each) for each in added] == [
        ["_id", "at", "is", "of", "price", "ratio", "total"],
        ["Total%", 'a"b'],
    ]
    rows = store.server.query("""SELECT _id, at, "is", of, price, ratio, total, "Total%", "a""b"
        FROM orders ORDER BY total, ratio""")
    assert rows == [
        (str(ID), AT, True, UUID4, Decimal("1.50"), None, 5, None, None),
        ("b", *[None] * 4, 1, None, None, None),
        ("c", *[None] * 4, 2, None, 0.5, "x"),
    ]
    for each in (handler, elsewhere):
        assert not await compared(each, changes)
    store.server.execute("UPDATE orders SET total = 6 WHERE total = 5")
    assert (await compared(elsewhere, changes)).different == {ID: ["total"]}


async def test_the_type_is_that_which_most_values_of_the_first_batch_fit(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(columns="auto")
    values: list[dict[str, Any]] = [
        {"a": 1, "b": 1, "c": "x"},
        {"a": 0.5, "b": Decimal128("2")},
        {"c": 1, "b": 0.5},
    ]
    values += [{"a": Int64(2), "c": "y"}]
    await deliver(handler, *[changes.insert({"_id": n, **each}) for n, each in enumerate(values)])
    expected = {"_id": "bigint", "a": "double precision", "b": "numeric", "c": "text"}
    assert types(store) == expected
    assert not await compared(handler, changes)


async def test_a_restart_knows_the_columns_and_another_type_is_null_and_counted(
    store: Store, changes: Changes
) -> None:
    first = await store.opened(columns="auto")
    await deliver(first, changes.insert({"_id": 1, "a": 1}), changes.insert({"_id": 2, "a": 2}))
    handler = await store.opened(columns="auto", on_misfit="refuse")
    await deliver(handler, changes.replace({"_id": 2}))
    await deliver(handler, changes.replace({"_id": 1, "a": "x"}))
    assert store.server.query("SELECT a FROM orders") == [(None,), (None,)]
    assert store.orders['{"_id":{"$numberInt":"1"}}']["a"] == "x"
    labels = {"scope": "orders", "handler": "it"}
    assert store.registry.get_sample_value("tailrace_column_misfits_total", labels) == 1
    assert not await compared(handler, changes)


async def test_declared_columns_win_and_names_that_clash_or_come_late_are_left_out(
    store: Store, changes: Changes
) -> None:
    columns = {"*": "auto", "total": "numeric", "customer.name": "text"}
    fields = {"leave_out": ["secret"], "rename": {"buyer": "by"}}
    handler = await store.opened(ORDERS, columns=columns, columns_limit=2, fields=fields)
    store.server.execute("ALTER TABLE orders ADD COLUMN mine text")
    clashes = [
        "key",
        "document",
        "tailrace_id",
        "xmin",
        "mine",
        "customer_name",
        "x" * 64,
        "",
        "a.b",
    ]
    row = {"_id": 1, "total": 1, "customer": {"name": "n"}, "buyer": 5, "secret": 1}
    with capture_logs() as logs:
        await deliver(handler, changes.insert(row | dict.fromkeys(clashes, 1)))
        await deliver(handler, changes.insert({"_id": 2, "by": 1, "late": 1}))
        await deliver(handler, changes.insert({"_id": 3, "by": 1, "later": 1}))
    assert types(store).keys() == {"total", "customer_name", "mine", "_id", "by"}
    left_out = [each["fields"] for each in logs if each["event"] == "columns.left_out"]
    assert left_out == [sorted(clashes)]
    assert store.server.query("SELECT mine FROM orders") == [(None,)] * 3
    assert not await compared(handler, changes)


async def test_two_writers_add_a_column_once(store: Store, changes: Changes) -> None:
    handlers = [await store.opened(ORDERS, columns="auto") for _ in range(2)]
    event = changes.insert({"_id": 1, "a": 1, "b": "x"})

    async def write(handler: Any) -> None:
        with suppress(Fenced):
            await deliver(handler, event)

    async with anyio.create_task_group() as tasks:
        for handler in handlers:
            tasks.start_soon(write, handler)
    assert types(store) == {"_id": "bigint", "a": "bigint", "b": "text"}
    assert not await compared(handlers[0], changes)


async def test_a_write_that_fails_after_the_columns_were_added_is_repeated(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS, columns="auto")
    store.server.execute("""
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;
        END $$;
        CREATE TRIGGER die BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION die();
    """)
    event = changes.insert({"_id": 1, "a": 1})
    with pytest.raises(Unavailable, match="57P01"):
        await deliver(handler, event)
    assert (types(store), store.orders) == ({"_id": "bigint", "a": "bigint"}, {})
    store.server.execute("DROP TRIGGER die ON orders")
    restarted = await store.opened(ORDERS, columns="auto")
    await deliver(restarted, event)
    assert store.server.query("SELECT a FROM orders") == [(1,)]
    assert not await compared(restarted, changes)


async def test_a_rename_takes_the_columns_along(store: Store, changes: Changes) -> None:
    """They have the types of the table whose rows move, unless a view needs another one."""
    handler = await store.opened(columns="auto")
    old = changes.elsewhere("old")
    await deliver(handler, changes.insert({"_id": 1, "a": 1, "same": 1, "new": 1}))
    await deliver(handler, old.insert({"_id": 2, "a": "x", "same": 2, "more": 2}))
    store.server.execute("CREATE VIEW seen AS SELECT a FROM old")
    renamed = changes.rename("old")
    with pytest.raises(ScopeHalted, match=r"view.*: drop what uses a, and restart the scope"):
        await deliver(handler, renamed)
    store.server.execute("DROP VIEW seen")
    await begin(handler)
    await deliver(handler, renamed)
    await deliver(handler, old.insert({"_id": 3, "a": 3, "more": 5}))
    await deliver(handler, changes.insert({"_id": 4, "b": 1}))
    assert types(store, "old") == dict.fromkeys(["_id", "a", "same", "more", "new"], "bigint")
    query = "SELECT _id, a, same, new, more FROM old ORDER BY 1"
    assert store.server.query(query) == [(1, 1, 1, 1, None), (3, 3, None, None, 5)]
    assert types(store) == {"_id": "bigint", "b": "bigint"}
    assert not await compared(handler, old, Namespace("shop", "old"))


async def test_its_handler_names_the_columns(store: Store) -> None:
    async with Harness({**store.server.handler, "columns": "auto"}) as harness:
        harness.changes.insert({"_id": 1, "a": 1})
        await harness.handled()
        assert harness.handler is not None
        assert harness.handler.columns is not None
        assert harness.handler.columns() == {"orders": ["_id", "a"]}


async def test_without_the_right_to_alter_the_start_is_refused(store: Store) -> None:
    await store.opened(ORDERS, columns={"a": "text"})
    store.server.execute("ALTER TABLE orders OWNER TO postgres; GRANT ALL ON orders TO PUBLIC")
    await store.opened(ORDERS, columns={"a": "text"})
    with pytest.raises(ConfigurationError, match="which only its owner may: let this role own it"):
        await store.opened(ORDERS, columns={"*": "auto", "a": "text"})


async def test_a_table_that_a_query_holds_is_waited_for(store: Store, changes: Changes) -> None:
    handler = await store.opened(ORDERS, columns="auto")
    with psycopg.connect(store.server.dsn) as reading:
        reading.execute("SELECT * FROM orders")
        with pytest.raises(Unavailable, match="no column can be added to"):
            await deliver(handler, changes.insert({"_id": 1}))
