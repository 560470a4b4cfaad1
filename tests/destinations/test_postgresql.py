"""What is special about PostgreSQL: its tables, what it refuses, and who may write."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import Any

import bson
import psycopg
import pytest
from bson import (
    Binary,
    Code,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)
from prometheus_client import CollectorRegistry

from tailrace import Fenced, PermanentError, Refused, Unavailable
from tailrace.config.delivery import DeliverySettings
from tailrace.config.secret import Secret
from tailrace.engine import Handler, RunIdentity
from tailrace.errors import ConfigurationError
from tailrace.event import ChangeEvent
from tailrace.event.snapshot_events import barrier
from tailrace.handlers.destination import Destination
from tailrace.handlers.handler_type import Opening
from tailrace.handlers.postgresql import PostgreSQLSettings, postgresql
from tailrace.handlers.postgresql.connection import connected, transaction
from tailrace.model import Scope
from tailrace.testing import Changes
from tests.destinations.destination import Make
from tests.destinations.postgresql import PostgreSQLDestination
from tests.handlers import OWNER, deliver

SHOP = Scope("orders", "shop", None)
ORDERS = Scope("orders", "shop", "orders")


@dataclass
class Store:
    """Handlers of one database; each event is written as the engine does it."""

    server: PostgreSQLDestination
    targets: list[Any] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    async def opened(self, *scopes: Scope, **settings: Any) -> Handler:
        """A handler that has begun. Without ``log``, tables are named after collections."""
        form = {} if "log" in settings else {"table": "{collection}"}
        found = PostgreSQLSettings.model_validate(
            {"type": "postgresql", "dsn": self.server.handler["dsn"], **form, **settings}
        )
        opening = Opening("it", DeliverySettings(), self.registry, follows=scopes or (SHOP,))
        target = postgresql(opening, found)
        await target.__aenter__()
        self.targets.append(target)
        called = Destination("it", target, self.registry)
        handler = Handler("it", called.calls(), called.position)
        await begin(handler)
        return handler

    @property
    def orders(self) -> dict[str, Any]:
        return dict(self.server.query("SELECT key, document FROM orders"))


async def begin(handler: Handler, identity: RunIdentity = OWNER) -> Any:
    assert handler.position is not None
    return await handler.position.load(identity)


@pytest.fixture
async def store(served: Callable[[str], Make], database: str) -> AsyncIterator[Store]:
    made = served("postgresql")(database)
    assert isinstance(made, PostgreSQLDestination)
    found = Store(made)
    yield found
    for target in found.targets:
        await target.__aexit__()
    made.start()


@pytest.fixture
def changes() -> Changes:
    return Changes()


IDS = [
    *("", "a" * 10_000, "ä\0b", 7.5, nan, inf, -0.0, True, None, 2**31, Int64(5)),
    *(ObjectId(), b"ab", Binary(b"x", 5), Decimal128("1E+6111")),
    *(Timestamp(1, 2), bson.DatetimeMS(2**62), {"a": [1, {"b": None}]}, {"a": "x" * 5000}),
    *(Regex("a", "i"), Code("f()"), Code("f()", {"a": 1}), DBRef("a", 1), MinKey(), MaxKey()),
]


async def test_an_id_of_every_type_and_length_is_one_row(store: Store, changes: Changes) -> None:
    handler = await store.opened(nul="replace")
    events = [changes.insert({"_id": each, "n": 1}) for each in IDS]
    await deliver(handler, *events)
    assert set(store.orders) == {event.key_text for event in events}
    await deliver(handler, *[changes.update(each, {"n": 2}) for each in IDS])
    assert [each["n"] for each in store.orders.values()] == [2] * len(IDS)
    await deliver(handler, *[changes.delete(each) for each in IDS])
    assert store.orders == {}


async def test_ids_that_mongodb_holds_equal_are_one_row(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    await deliver(handler, changes.insert({"_id": 7}), changes.delete(7))
    await deliver(handler, changes.insert({"_id": 7.0}))
    await deliver(handler, changes.delete(7.0), changes.insert({"_id": Decimal128("7.0")}))
    assert list(store.orders) == ['{"_id":{"$numberDecimal":"7.0"}}']


ODD = {
    "nan": ({"$numberDouble": "NaN"}, nan),
    "infinity": ({"$numberDouble": "-Infinity"}, -inf),
    "large": (
        {"$numberDecimal": "1.000000000000000000000000000000000E+6144"},
        Decimal128("1E+6144"),
    ),
    "int64": (2**63 - 1, Int64(2**63 - 1)),
    "far": ({"$date": {"$numberLong": str(2**62)}}, bson.DatetimeMS(2**62)),
    "backslash": ("\\u0000", "\\u0000"),
    "quote": (
        "\"'%s\n\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "\"'%s\n😀",
    ),
}


async def test_odd_values_are_stored_as_extended_json(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    await deliver(handler, changes.insert({"_id": 1, **{name: v for name, (_, v) in ODD.items()}}))
    (document,) = store.orders.values()
    assert document == {"_id": 1, **{name: shown for name, (shown, _) in ODD.items()}}


async def test_lone_surrogates_are_stored_as_replacement_characters(
    store: Store, changes: Changes
) -> None:
    raw = changes.insert({"_id": 1, "text": "abc"}).raw.replace(b"abc", b"\xed\xa0\x80")
    await deliver(await store.opened(), ChangeEvent.from_raw(raw))
    assert store.orders['{"_id":{"$numberInt":"1"}}']["text"] == "\ufffd" * 3


@pytest.mark.parametrize("form", [{}, {"log": "changes"}], ids=["table", "log"])
async def test_nul_is_refused_or_replaced(
    store: Store, changes: Changes, form: dict[str, Any]
) -> None:
    events = [changes.insert({"_id": n, "text": "a\0b" if n == 1 else "a"}) for n in range(3)]
    handler = await store.opened(**form)
    with pytest.raises(Refused) as refused:
        await deliver(handler, *events)
    ((at, reason),) = refused.value.reasons.items()
    assert at == 1
    assert all(each in reason for each in ("NUL", "shop.orders", '"$numberInt":"1"'))
    handler = await store.opened(nul="replace", **form)
    await deliver(handler, *events)
    rows = store.server.query(
        "SELECT event -> 'fullDocument' ->> 'text' FROM changes"
        if form
        else "SELECT document ->> 'text' FROM orders"
    )
    assert sorted(rows) == [("a",), ("a",), ("a\ufffdb",)]


async def test_only_the_last_change_of_a_document_in_a_batch_can_be_refused(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened()
    bad = changes.insert({"_id": 1, "text": "\0"})
    await deliver(handler, bad, changes.update(1, {"text": "good"}))
    assert store.orders['{"_id":{"$numberInt":"1"}}']["text"] == "good"


COLUMNS = {
    "total": "numeric(6,2)",
    "at": "timestamptz",
    "customer.name": "text",
    "count": "integer",
    "ratio": "double precision",
    "small": "real",
    "ok": "boolean",
    "uuid": "uuid",
    "raw": "bytea",
    "more": "jsonb",
    "big": "numeric",
}


async def test_declared_columns_have_the_values_of_their_fields(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(columns=COLUMNS)
    identity = ObjectId()
    document = {
        "_id": 1,
        "total": Decimal128("12.345"),
        "at": bson.DatetimeMS(9_224_318_015_999_999),
        "customer": {"name": identity},
        "count": 5.0,
        "ratio": nan,
        "small": 0.5,
        "ok": True,
        "uuid": "12345678-1234-4234-8234-123456789012",
        "raw": b"ab",
        "more": [1],
        "big": Decimal128("1E+6111"),
    }
    await deliver(handler, changes.insert(document), changes.insert({"_id": 2}))
    one, two = store.server.query(
        "SELECT total::text, at::text, customer_name, count, ratio::text, small, ok, uuid::text, "
        "raw, more, big = 1e6111 FROM orders ORDER BY key"
    )
    assert one == (
        *("12.35", "294276-12-31 23:59:59.999+00", str(identity), 5, "NaN", 0.5, True),
        *("12345678-1234-4234-8234-123456789012", b"ab", [1], True),
    )
    assert two == (None,) * len(COLUMNS)


@pytest.mark.parametrize("on_misfit", ["null", "refuse"])
async def test_a_misfit_is_null_and_counted_or_refused(
    store: Store, changes: Changes, on_misfit: str
) -> None:
    handler = await store.opened(columns={"total": "numeric"}, on_misfit=on_misfit)
    events = [changes.insert({"_id": 1, "total": inf}), changes.insert({"_id": 2, "total": 1})]
    if on_misfit == "null":
        await deliver(handler, *events)
        assert store.server.query("SELECT total FROM orders ORDER BY key") == [(None,), (1,)]
        labels = {"scope": "orders", "handler": "it"}
        assert store.registry.get_sample_value("tailrace_column_misfits_total", labels) == 1
    else:
        with pytest.raises(Refused) as refused:
            await deliver(handler, *events)
        assert "total: an infinite number does not fit numeric" in refused.value.reasons[0]


async def test_fields_are_mapped_in_document_and_not_in_columns(
    store: Store, changes: Changes
) -> None:
    fields = {"take": ["name", "card"], "leave_out": ["card"], "rename": {"name": "buyer"}}
    handler = await store.opened(fields=fields, columns={"card": "text"})
    await deliver(handler, changes.insert({"_id": 1, "name": "a", "card": "b", "more": 1}))
    rows = store.server.query("SELECT document, card FROM orders")
    assert rows == [({"_id": 1, "buyer": "a"}, "b")]


# --- tables --------------------------------------------------------------------------------------


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
    ("more", "told"),
    [
        (", total numeric", "no unique index on 'tailrace_id': CREATE UNIQUE INDEX"),
        (" UNIQUE", 'no column \'total\': ALTER TABLE "public"."orders" ADD COLUMN'),
        (" UNIQUE, total text", "column 'total' of the table .* has the type text, not numeric"),
        (" PRIMARY KEY, total numeric, more text CHECK (more IS NULL)", ""),
    ],
)
async def test_a_table_of_other_columns_is_refused_with_what_it_lacks(
    store: Store, changes: Changes, more: str, told: str
) -> None:
    store.server.execute(GIVEN.format(more=more))
    store.server.execute("GRANT ALL ON orders TO PUBLIC")
    settings: dict[str, Any] = {"columns": {"total": "numeric"}}
    if told:
        with pytest.raises(ConfigurationError, match=rf"handlers\.it: .*{told}"):
            await store.opened(ORDERS, **settings)
    else:
        handler = await store.opened(ORDERS, **settings)
        await deliver(handler, changes.insert({"_id": 1, "total": 5}))
        assert store.server.query("SELECT total FROM orders") == [(5,)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"schema": "elsewhere"}, "no schema 'elsewhere': CREATE SCHEMA"),
        ({"schema": "private"}, "permission denied for schema private"),
        ({"create": False}, "no table .*tailrace_positions.* create is false. CREATE TABLE"),
    ],
    ids=str,
)
async def test_a_schema_without_rights_or_tables_is_one_line(
    store: Store, settings: dict[str, Any], told: str
) -> None:
    store.server.execute("CREATE SCHEMA private")
    with pytest.raises(ConfigurationError, match=rf"handlers\.it: .*{told}") as refused:
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


# --- deletes, DDL and snapshots ------------------------------------------------------------------


async def test_an_update_without_its_document_is_no_row(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    event = changes.insert({"_id": 1})
    gone = {**changes.update(1, {"a": 1}).document, "fullDocument": None}
    await deliver(handler, event, ChangeEvent.from_document(gone))
    assert store.orders == {}
    without = {name: value for name, value in gone.items() if name != "fullDocument"}
    with pytest.raises(Refused, match="it has no document"):
        await deliver(handler, ChangeEvent.from_document(without))


async def test_with_soft_delete_a_deleted_document_keeps_its_row(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(soft_delete=True)
    await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
    delete = changes.delete(1)
    await deliver(handler, delete)
    deleted = "SELECT extract(epoch FROM deleted_at)::int FROM orders ORDER BY key"
    assert delete.cluster_time is not None
    assert store.server.query(deleted) == [(None,), (delete.cluster_time.time,), (None,)]
    await deliver(handler, changes.insert({"_id": 1}))
    assert store.server.query(deleted) == [(None,)] * 3
    drop = changes.drop()
    await deliver(handler, drop)
    assert drop.cluster_time is not None
    assert store.server.query(deleted) == [(drop.cluster_time.time,)] * 3


@pytest.mark.parametrize("ddl", ["follow", "keep", "refuse"])
async def test_a_drop_and_a_rename_follow_the_policy_of_ddl(
    store: Store, changes: Changes, ddl: str
) -> None:
    handler = await store.opened(ddl=ddl)
    old = changes.elsewhere("old")
    await deliver(handler, changes.insert({"_id": 1}), changes.insert({"_id": 2}))
    await deliver(handler, old.insert({"_id": 3}))
    rename, last = changes.rename("old"), old.insert({"_id": 4})
    drop = changes.elsewhere("old").drop()

    def keys(table: str) -> list[str]:
        return [key[-4] for (key,) in store.server.query("SELECT key FROM {} ORDER BY 1", table)]

    if ddl == "refuse":
        with pytest.raises(PermanentError, match=r"rename of shop\.orders, and ddl is 'refuse'"):
            await deliver(handler, rename)
        return
    await deliver(handler, rename)
    await deliver(handler, last)
    if ddl == "keep":
        assert (keys("orders"), keys("old")) == (["1", "2"], ["3", "4"])
        return
    assert (keys("orders"), keys("old")) == ([], ["1", "2", "4"])
    assert store.server.query("SELECT name FROM tailrace_tables") == [("old",)]
    await begin(handler)  # a crash: they come again
    await deliver(handler, rename)
    assert (keys("orders"), keys("old")) == ([], ["1", "2", "4"])
    await deliver(handler, drop)
    await deliver(handler, old.insert({"_id": 5}))
    await begin(handler)
    await deliver(handler, drop)
    assert keys("old") == ["5"]


def snapshot_end(changes: Changes, began: Timestamp, **more: Any) -> ChangeEvent:
    listed = [{"db": "shop", "coll": "orders", "state": "done"}]
    snapshot = {"filter": "", "chosen": [], "collections": listed, "began": began, **more}
    (event,) = barrier("snapshotEnd", "s", changes.oplog.now, {"snapshot": snapshot}).events()
    return event


@pytest.mark.parametrize(
    ("more", "orders", "gone"),
    [
        ({}, [2, 3], []),
        ({"filter": "{}"}, [1, 2, 3], [1]),
        ({"chosen": ["orders"]}, [2, 3], [1]),
        ({"collections": [{"db": "shop", "coll": "orders", "state": "refused"}]}, [1, 2, 3], []),
    ],
    ids=str,
)
async def test_a_snapshot_sweeps_what_it_did_not_find(
    store: Store, changes: Changes, more: dict[str, Any], orders: list[int], gone: list[int]
) -> None:
    handler = await store.opened()
    other = changes.elsewhere("gone")
    await deliver(handler, changes.insert({"_id": 1}), changes.insert({"_id": 2}))
    await deliver(handler, other.insert({"_id": 1}))
    began = changes.insert({"_id": 3})
    await deliver(handler, changes.read(2))
    await deliver(handler, began)
    assert began.cluster_time is not None
    await deliver(handler, snapshot_end(changes, began.cluster_time, **more))
    assert sorted(each["_id"] for each in store.orders.values()) == orders
    rows = store.server.query("SELECT document -> '_id' FROM gone")
    assert rows == [(each,) for each in gone]


async def test_a_log_has_a_row_for_each_event_and_ddl_once(store: Store, changes: Changes) -> None:
    handler = await store.opened(log="changes")
    events = [changes.insert({"_id": 1}), changes.update(1, {"a": 1}), changes.delete(1)]
    await deliver(handler, *events)
    drop, invalidate = changes.drop(), changes.invalidate()
    end = snapshot_end(changes, changes.oplog.now)
    for event in (drop, invalidate, end, drop, invalidate, end):
        await begin(handler)
        await deliver(handler, event)
    rows = store.server.query(
        "SELECT id, scope, op, namespace, key, event -> '_id' ->> '_data' FROM changes "
        "ORDER BY position"
    )
    key = '{"_id":{"$numberInt":"1"}}'
    of_changes = [
        (each.id["_data"], "orders", operation, "shop.orders", key, each.id["_data"])
        for each, operation in zip(events, ("insert", "update", "delete"), strict=True)
    ]
    token = drop.id["_data"]
    assert rows[:4] == [*of_changes, (token, "orders", "drop", "shop.orders", None, token)]
    assert [row[2] for row in rows[4:]] == ["invalidate", "snapshotEnd"]


# --- who may write -------------------------------------------------------------------------------


async def test_of_two_daemons_with_stores_of_their_own_the_second_writer_is_fenced(
    store: Store, changes: Changes
) -> None:
    one, two = await store.opened(), await store.opened()
    first = changes.insert({"_id": 1})
    await deliver(one, first)
    with pytest.raises(Fenced, match="another process writes there"):
        await deliver(two, first)
    three = await store.opened()
    await deliver(one, changes.insert({"_id": 2}))
    with pytest.raises(Fenced, match="another process writes there"):
        await deliver(three, changes.drop())
    await begin(two, replace(OWNER, epoch=2))
    with pytest.raises(Fenced, match="SET epoch = 0"):
        await begin(one)
    assert len(store.orders) == 2


async def test_a_restored_backup_gets_what_it_lacks_and_fences_who_wrote_after_it(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened()
    await deliver(handler, changes.insert({"_id": 1}))
    before = await begin(handler)
    store.server.execute("CREATE TABLE kept AS SELECT * FROM orders")
    store.server.execute("CREATE TABLE kept_positions AS SELECT * FROM tailrace_positions")
    await deliver(handler, changes.insert({"_id": 2}))
    store.server.execute("DELETE FROM orders; INSERT INTO orders SELECT * FROM kept")
    store.server.execute("""
        UPDATE tailrace_positions p SET position = k.position FROM kept_positions k
    """)
    last = changes.insert({"_id": 3})
    with pytest.raises(Fenced, match="the database was restored"):
        await deliver(handler, last)
    assert await begin(handler) == before


async def test_a_killed_backend_is_an_outage_and_stores_nothing(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS)
    store.server.execute("""
        CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;
        END $$;
        CREATE TRIGGER die BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION die();
    """)
    event = changes.insert({"_id": 1})
    with pytest.raises(Unavailable, match="57P01"):
        await deliver(handler, event)
    store.server.execute("DROP TRIGGER die ON orders")
    assert await begin(handler) is None
    await deliver(handler, event)
    assert len(store.orders) == 1


STATES = {
    "serialization_failure": True,
    "disk_full": True,
    "query_canceled": True,
    "insufficient_privilege": True,
    "lock_not_available": True,
    "division_by_zero": False,
    "exclusion_violation": False,
    "raise_exception": False,
}


@pytest.mark.parametrize("state", STATES)
async def test_an_error_of_the_server_is_an_outage_or_refuses_its_event(
    store: Store, changes: Changes, state: str
) -> None:
    """Nothing of the batch is stored."""
    handler = await store.opened(ORDERS)
    store.server.execute(f"""
        CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.document ->> '_id' = '1' THEN RAISE {state}; END IF; RETURN NEW;
        END $$;
        CREATE TRIGGER fail BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fail();
    """)
    events = [changes.insert({"_id": n}) for n in range(3)]
    with pytest.raises(Unavailable if STATES[state] else Refused, match="SQLSTATE") as raised:
        await deliver(handler, *events)
    if isinstance(raised.value, Refused):
        assert list(raised.value.reasons) == [1]
    assert store.orders == {}
    assert await begin(handler) is None


async def test_a_process_that_is_paused_in_a_transaction_does_not_hold_up_the_next(
    store: Store, changes: Changes
) -> None:
    """The server ends its transaction, and it stores nothing when it wakes up."""
    handler = await store.opened(ORDERS)
    async with await connected(Secret(store.server.dsn)) as paused:
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):  # noqa: PT012
            async with transaction(paused):
                await paused.execute("UPDATE tailrace_positions SET position = 'late'")
                assert await begin(handler, replace(OWNER, epoch=2)) is None
                await paused.execute("SELECT 1")
    await deliver(handler, changes.insert({"_id": 1}), identity=replace(OWNER, epoch=2))
    assert len(store.orders) == 1


@pytest.mark.parametrize(
    ("statement", "undo", "told"),
    [
        (
            "ALTER DATABASE {} SET default_transaction_read_only = on",
            "ALTER DATABASE {} RESET default_transaction_read_only",
            "SQLSTATE 25006",
        ),
        (
            "ALTER DATABASE {} CONNECTION LIMIT 0",
            "ALTER DATABASE {} CONNECTION LIMIT -1",
            "too man",
        ),
    ],
    ids=["read-only", "connections"],
)
async def test_a_server_that_takes_no_writes_or_connections_is_waited_out(
    store: Store, changes: Changes, statement: Any, undo: Any, told: str
) -> None:
    handler = await store.opened(ORDERS)
    store.server.execute(statement.format(store.server.database))
    with pytest.raises(Unavailable, match=told):
        await begin(handler)
    store.server.execute(undo.format(store.server.database))
    await begin(handler)
    await deliver(handler, changes.insert({"_id": 1}))


async def test_a_changed_dsn_file_is_read_at_the_next_connection(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS)
    await deliver(handler, changes.insert({"_id": 1}))
    store.server.expire()
    with pytest.raises(Unavailable):
        await deliver(handler, changes.insert({"_id": 2}))
    with pytest.raises(Unavailable, match="not permitted to log in"):
        await begin(handler)
    store.server.renew()
    await begin(handler)
    await deliver(handler, changes.insert({"_id": 3}))
    assert len(store.orders) == 2
