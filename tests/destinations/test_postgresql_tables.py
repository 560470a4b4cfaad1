"""Tables of PostgreSQL: their names, columns and rights, and constraints of users."""

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import psycopg
import pytest

from tailrace import Unavailable
from tailrace.errors import ConfigurationError, ScopeHalted
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.postgresql_store import ORDERS, SHOP, Store, begin
from tests.handlers import deliver


async def test_long_collection_names_get_tables_of_their_own(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(table="{database}_{collection}")
    for name in ("ä" * 60 + "a", "ä" * 60 + "b", 'q"%s'):
        await deliver(handler, changes.elsewhere(name).insert({"_id": name}))
    tables = [name for (name,) in store.server.query("SELECT name FROM tailrace_tables")]
    assert len({*tables, 'shop_q"%s'}) == 3
    for table in tables:
        assert len(store.server.query("SELECT key FROM {}", table)) == 1


async def test_two_collections_never_share_a_table(store: Store, changes: Changes) -> None:
    scopes = Scope("a", "shop", "orders"), Scope("b", "archive", "orders")
    with pytest.raises(ConfigurationError, match=r"shop\.orders and archive\.orders would share"):
        await store.opened(*scopes)
    with pytest.raises(ConfigurationError, match=r"both follow shop\.orders"):
        await store.opened(SHOP, replace(ORDERS, name="other"))
    handler = await store.opened(Scope("orders"))
    await deliver(handler, changes.insert({"_id": 1}))
    with pytest.raises(ScopeHalted, match=r"holds shop\.orders .* cannot hold archive\.orders"):
        await deliver(handler, changes.elsewhere("orders", "archive").insert({"_id": 2}))
    assert len(store.orders) == 1


GIVEN = """CREATE TABLE orders (key text, document jsonb, cluster_time timestamptz,
    tailrace_version bigint, tailrace_id bytea {more})"""


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", total numeric", "no unique index on 'tailrace_id': CREATE UNIQUE INDEX"),
        (" UNIQUE", 'no column \'total\': ALTER TABLE "public"."orders" ADD COLUMN'),
        (" UNIQUE, total text", "column 'total' of the table .* has the type text, not numeric"),
        (" PRIMARY KEY, total numeric, more text CHECK (more IS NULL)", ""),
        (
            " PRIMARY KEY, total numeric GENERATED ALWAYS AS (5) STORED",
            "no values in columns that are written: 'total' is generated",
        ),
        (" UNIQUE DEFERRABLE, total numeric", "no unique index on 'tailrace_id'"),
        (
            " UNIQUE, total numeric, a int NOT NULL, b int NOT NULL, c int NOT NULL DEFAULT 1",
            "NOT NULL without a default, and nothing fills them: 'a', 'b'",
        ),
    ],
)
async def test_a_table_of_other_columns_is_refused_with_what_it_lacks(
    store: Store, changes: Changes, more: str, message: str
) -> None:
    store.server.execute(GIVEN.format(more=more))
    store.server.execute("GRANT ALL ON orders TO PUBLIC")
    settings: dict[str, Any] = {"columns": {"total": "numeric"}}
    if message:
        with pytest.raises(ConfigurationError, match=rf"handlers\.it: .*{message}"):
            await store.opened(ORDERS, **settings)
    else:
        handler = await store.opened(ORDERS, **settings)
        await deliver(handler, changes.insert({"_id": 1, "total": 5}))
        assert store.server.query("SELECT total FROM orders") == [(5,)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schema": "elsewhere"}, "no schema 'elsewhere': CREATE SCHEMA"),
        ({"schema": "private"}, "permission denied for schema private"),
        ({"create": False}, "no table .*tailrace_positions.* create is false. CREATE TABLE"),
    ],
    ids=str,
)
async def test_a_schema_without_rights_or_tables_is_one_line(
    store: Store, settings: dict[str, Any], message: str
) -> None:
    store.server.execute("CREATE SCHEMA private")
    with pytest.raises(ConfigurationError, match=rf"handlers\.it: .*{message}") as refused:
        await store.opened(ORDERS, **settings)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn", ["postgresql://postgres@127.0.0.1:1/shop", "postgresql://nobody.invalid/shop"]
)
async def test_a_server_that_is_not_there_is_an_outage(store: Store, dsn: str) -> None:
    with pytest.raises(Unavailable):
        await store.opened(dsn=dsn)


async def test_a_table_that_was_dropped_is_not_made_again_without_its_rows(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS)
    await deliver(handler, changes.insert({"_id": 1}))
    store.server.execute("DROP TABLE orders")
    with pytest.raises(
        ScopeHalted, match="not there any more: restore it or its name, or delete its row"
    ):
        await begin(handler)
    store.server.execute("DELETE FROM tailrace_tables")
    await begin(handler)
    assert store.orders == {}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("total bigint GENERATED ALWAYS AS IDENTITY", "'total' is an identity column"),
        ("total bigint GENERATED BY DEFAULT AS IDENTITY", ""),
    ],
)
async def test_identity_columns_are_refused_if_they_take_no_values(
    store: Store, table: str, message: str
) -> None:
    store.server.execute(GIVEN.format(more=f" PRIMARY KEY, {table}"))
    store.server.execute("GRANT ALL ON orders TO PUBLIC")
    if message:
        with pytest.raises(ConfigurationError, match=message):
            await store.opened(ORDERS, columns={"total": "bigint"})
    else:
        await store.opened(ORDERS, columns={"total": "bigint"})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("CREATE VIEW orders AS SELECT 1 AS key", "is not a table"),
        (GIVEN.format(more=" UNIQUE") + "; GRANT SELECT, INSERT ON orders TO PUBLIC", "permission"),
        (GIVEN.format(more=" UNIQUE") + "; GRANT ALL ON orders TO PUBLIC", ""),
    ],
)
async def test_what_cannot_be_written_is_refused_at_the_start(
    store: Store, table: str, message: str
) -> None:
    store.server.execute(table)
    if message:
        with pytest.raises(ConfigurationError, match=message):
            await store.opened(ORDERS)
    else:
        await store.opened(ORDERS)


@pytest.mark.parametrize("name", ["tailrace_positions", "tailrace_tables"])
async def test_rights_on_the_tables_of_its_own_are_tried_at_the_start(
    store: Store, name: str
) -> None:
    await store.opened(ORDERS)
    store.server.execute(f"ALTER TABLE {name} OWNER TO postgres; GRANT SELECT ON {name} TO PUBLIC")
    with pytest.raises(ConfigurationError, match=f"permission denied for table {name}"):
        await store.opened(ORDERS)


async def test_handlers_that_start_at_once_make_the_tables_of_an_empty_database_once(
    store: Store,
) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(partial(store.opened, Scope("orders", "shop", f"c{number}")))
    assert len(store.server.query("SELECT name FROM tailrace_tables")) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP TABLE orders", "not there any more: restore it or its name, or delete its row"),
        ("ALTER TABLE orders RENAME TO former", "not there any more: restore it or its name"),
        ("ALTER TABLE orders DROP COLUMN total", "no column 'total': .* and start a snapshot"),
        ("ALTER TABLE orders ALTER total TYPE date USING NULL", "has the type date, not numeric"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "no unique index on 'tailrace_id'"),
        (
            "DELETE FROM orders; ALTER TABLE orders ADD more int NOT NULL",
            "nothing fills them: 'more'",
        ),
    ],
)
async def test_a_table_that_is_changed_under_a_running_handler_halts_its_scope(
    store: Store, changes: Changes, change: str, message: str
) -> None:
    """``ScopeHalted`` halts; any other error would restart the scope for ever."""
    handler = await store.opened(ORDERS, columns={"total": "numeric"})
    await deliver(handler, changes.insert({"_id": 1}))
    store.server.execute(change)
    with pytest.raises((psycopg.Error, ScopeHalted)):  # then the engine asks for the position
        await deliver(handler, changes.insert({"_id": 2, "total": 5}))
    with pytest.raises(ScopeHalted, match=message):
        await begin(handler)
