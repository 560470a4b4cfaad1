"""Tables of PostgreSQL: their names, columns and rights, and constraints of users."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace import PermanentError, Refused, Unavailable
from tailrace.errors import ConfigurationError
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
    with pytest.raises(PermanentError, match=r"holds shop\.orders .* cannot hold archive\.orders"):
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
    with pytest.raises(PermanentError, match="not there any more: restore it, or delete its row"):
        await begin(handler)
    store.server.execute("DELETE FROM tailrace_tables")
    await begin(handler)
    assert store.orders == {}


async def test_what_a_constraint_refuses_is_found_in_the_batch(
    store: Store, changes: Changes
) -> None:
    """Also what is refused at the commit, such as a deferred key."""
    handler = await store.opened(columns={"total": "integer", "name": "text"})
    await deliver(handler, changes.insert({"_id": -1, "total": 1, "name": "x"}))
    store.server.execute("ALTER TABLE orders ADD CHECK (total < 100)")
    store.server.execute("ALTER TABLE orders ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
    events = [changes.insert({"_id": n, "total": 100 if n in (3, 17) else n}) for n in range(20)]
    events.append(changes.insert({"_id": 20, "name": "x"}))
    with pytest.raises(Refused) as refused:
        await deliver(handler, *events)
    assert list(refused.value.reasons) == [3, 17, 20]
    assert "SQLSTATE 23514" in refused.value.reasons[3]
    await begin(handler)
    await deliver(handler, *[each for at, each in enumerate(events) if at not in (3, 17, 20)])
    assert len(store.orders) == 19
