"""Who may write to PostgreSQL, and which of its errors are outages."""

from dataclasses import replace
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from tailrace import Fenced, Refused, Unavailable
from tailrace.destination.secret import Secret
from tailrace.destinations.postgresql.connection import connected, transaction
from tailrace.testing import Changes, Harness, NotHandled
from tests.destinations.postgresql_store import ORDERS, Store, begin
from tests.faults.disk import fill, small_disk
from tests.handlers import OWNER, deliver


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


def ids(store: Store) -> list[int]:
    return sorted(document["_id"] for document in store.orders.values())


async def test_after_a_halt_and_a_repair_the_refused_change_comes_before_those_after_it(
    store: Store,
) -> None:
    handler = {**store.server.handler, "on_failure": "halt"}
    async with Harness(handler) as harness:
        harness.changes.insert({"_id": 1})
        await harness.handled()
        store.server.execute(
            "ALTER TABLE orders ADD CONSTRAINT odd CHECK (document ->> '_id' <> '3')"
        )
        for number in (2, 3, 4):
            harness.changes.insert({"_id": number})
        with pytest.raises(NotHandled, match="odd"):
            await harness.handled()
        assert ids(store) == [1, 2]
        store.server.execute("ALTER TABLE orders DROP CONSTRAINT odd")
        await harness.restart()
        await harness.handled()
    assert ids(store) == [1, 2, 3, 4]


async def test_a_database_that_is_set_back_in_a_run_gets_what_it_lacks(store: Store) -> None:
    """A restored one from its position on; an emptied one from the checkpoint, with the advice."""
    async with Harness(store.server.handler) as harness:
        harness.changes.insert({"_id": 1})
        await harness.handled()
        store.server.execute("CREATE TABLE kept AS SELECT * FROM orders")
        store.server.execute("CREATE TABLE kept_positions AS SELECT * FROM tailrace_positions")
        harness.changes.insert({"_id": 2})
        await harness.saved()
        store.server.execute("""
            TRUNCATE orders, tailrace_positions;
            INSERT INTO orders SELECT * FROM kept;
            INSERT INTO tailrace_positions SELECT * FROM kept_positions;
        """)
        harness.changes.insert({"_id": 3})
        with capture_logs() as logs:
            await harness.handled()
        assert ids(store) == [1, 2, 3]
        assert len([each for each in logs if "its destination was restored" in str(each)]) == 1
        store.server.execute("TRUNCATE orders, tailrace_positions")
        harness.changes.insert({"_id": 4})
        with capture_logs() as logs:
            await harness.handled()
        assert ids(store) == [4]
        assert any("'tailrace snapshot start" in str(each) for each in logs)
        await harness.snapshot()
    assert ids(store) == [1, 2, 3, 4]


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


async def test_row_security_refuses_an_event_though_its_code_is_that_of_a_missing_right(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS)
    store.server.execute("""
        ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
        ALTER TABLE orders FORCE ROW LEVEL SECURITY;
        CREATE POLICY rows_of_some ON orders USING (true) WITH CHECK (document ->> '_id' <> '1');
    """)
    with pytest.raises(Refused, match="SQLSTATE 42501") as raised:
        await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
    assert list(raised.value.reasons) == [1]


async def test_a_table_that_somebody_has_locked_does_not_hold_up_a_start(store: Store) -> None:
    await store.opened(ORDERS)
    with psycopg.connect(store.server.dsn) as locking:
        locking.execute("LOCK TABLE orders")
        with pytest.raises(Unavailable, match="SQLSTATE 55P03"):
            await store.opened(ORDERS)


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
    ("statement", "undo", "message"),
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
    store: Store, changes: Changes, statement: Any, undo: Any, message: str
) -> None:
    handler = await store.opened(ORDERS)
    store.server.execute(statement.format(store.server.database))
    with pytest.raises(Unavailable, match=message):
        await begin(handler)
    store.server.execute(undo.format(store.server.database))
    await begin(handler)
    await deliver(handler, changes.insert({"_id": 1}))


async def test_a_full_disk_is_waited_out(store: Store, changes: Changes) -> None:
    """The tables of the database are on a small disk of their own."""
    disk, server = store.server.server.directory / f"{store.server.database}-disk", store.server
    with small_disk(disk) as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        with server.on_disk(disk):
            handler = await store.opened(ORDERS)
            await deliver(handler, changes.insert({"_id": 0}))
            ballast = fill(disk)
            # PostgreSQL compresses what is alike.
            more = [changes.insert({"_id": n, "text": token_hex(10_000)}) for n in range(1, 50)]
            with pytest.raises(Unavailable, match="No space left on device"):
                await deliver(handler, *more)
            before = await begin(handler)
            assert (before is not None, len(store.orders)) == (True, 1)
            ballast.unlink()
            await deliver(handler, *more)
            assert len(store.orders) == 50
            await store.closed()
