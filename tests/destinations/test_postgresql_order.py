"""The order of the stream within a batch: constraints between documents and between tables."""

from collections.abc import Sequence

import pytest

from tailrace import Refused, Unavailable
from tailrace.engine import Handler
from tailrace.errors import BatchTooLarge
from tailrace.event import ChangeEvent
from tailrace.testing import Changes
from tests.destinations.postgresql_store import ORDERS, Store, begin
from tests.handlers import deliver


async def refused(handler: Handler, events: Sequence[ChangeEvent]) -> dict[int, str]:
    """Why events are refused; the others are delivered after it, as the engine does."""
    with pytest.raises(Refused) as error:
        await deliver(handler, *events)
    reasons = error.value.reasons
    await begin(handler)
    await deliver(handler, *[event for at, event in enumerate(events) if at not in reasons])
    return reasons


async def test_what_a_constraint_refuses_is_found_in_the_batch(
    store: Store, changes: Changes
) -> None:
    """Also what is refused at the commit, such as a deferred key."""
    handler = await store.opened(columns={"total": "integer", "name": "text"})
    await deliver(handler, changes.insert({"_id": -1, "total": 1, "name": "x"}))
    store.server.execute("ALTER TABLE orders ADD CHECK (total < 100)")
    store.server.execute("ALTER TABLE orders ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED")
    events = [changes.insert({"_id": n, "total": 100 if n in (3, 17) else n}) for n in range(20)]
    reasons = await refused(handler, events)
    assert list(reasons) == [3, 17]
    assert "SQLSTATE 23514" in reasons[3]
    assert len(store.orders) == 19
    events = [changes.insert({"_id": n, "name": "x" if n == 21 else str(n)}) for n in range(20, 23)]
    assert list(await refused(handler, events)) == [1]
    assert len(store.orders) == 21


UNIQUE = {
    "at once": "ALTER TABLE orders ADD UNIQUE (name)",
    "deferred": "ALTER TABLE orders ADD UNIQUE (name) DEFERRABLE INITIALLY DEFERRED",
}


@pytest.mark.parametrize("unique", UNIQUE.values(), ids=UNIQUE)
async def test_a_unique_value_goes_from_one_document_to_another(
    store: Store, changes: Changes, unique: str
) -> None:
    handler = await store.opened(ORDERS, columns={"name": "text"})
    store.server.execute(unique)
    await deliver(handler, *[changes.insert({"_id": id, "name": id + "1"}) for id in "ABCD"])
    moves = (("B", "v"), ("A", "z"), ("B", "A1"), ("C", "w"), ("D", "C1"), ("C", "D1"))
    await deliver(handler, *[changes.update(id, {"name": name}) for id, name in moves])
    assert {row["_id"]: row["name"] for row in store.orders.values()} == {
        "A": "z",
        "B": "A1",
        "C": "D1",
        "D": "C1",
    }


@pytest.mark.parametrize("unique", UNIQUE.values(), ids=UNIQUE)
async def test_only_the_event_at_fault_is_named_where_values_change_hands(
    store: Store, changes: Changes, unique: str
) -> None:
    """A and B exchange values; C takes one that D has."""
    handler = await store.opened(ORDERS, columns={"name": "text"})
    store.server.execute(unique)
    await deliver(handler, *[changes.insert({"_id": id, "name": id + "1"}) for id in "ABCD"])
    moves = (("A", "v"), ("B", "A1"), ("C", "D1"), ("A", "B1"))
    events = [changes.update(id, {"name": name}) for id, name in moves]
    assert list(await refused(handler, events)) == [2]
    names = {row["_id"]: row["name"] for row in store.orders.values()}
    assert names == {"A": "B1", "B": "A1", "C": "C1", "D": "D1"}


CASCADE = "ON DELETE CASCADE"


@pytest.mark.parametrize("more", ["", CASCADE, "DEFERRABLE INITIALLY DEFERRED"])
async def test_a_parent_and_its_child_come_in_one_batch(
    store: Store, changes: Changes, more: str
) -> None:
    """In both orders of tables, and only a child without a parent is at fault."""
    handler = await store.opened(columns={"parent": "integer", "number": "integer"})
    orders, items = changes, changes.elsewhere("items")
    await deliver(
        handler,
        *[orders.insert({"_id": n, "number": n}) for n in (1, 8, 9)],
        *[items.insert({"_id": n, "parent": 1}) for n in (1, 2, 9)],
    )
    store.server.execute(
        "ALTER TABLE orders ADD UNIQUE (number);"
        f"ALTER TABLE items ADD FOREIGN KEY (parent) REFERENCES orders (number) {more}"
    )
    await begin(handler)  # the key is seen
    events = [
        items.update(1, {"n": 1}),
        orders.insert({"_id": 2, "number": 2}),
        items.update(1, {"parent": 2}),
        items.insert({"_id": 3, "parent": 7}),
        orders.delete(8),
        orders.insert({"_id": 4, "number": 4}),
        items.update(2, {"parent": 4}),
        items.insert({"_id": 4, "parent": 2}),
    ]
    assert list(await refused(handler, events)) == [3]
    rows = store.server.query("SELECT key, parent FROM items ORDER BY 1")
    assert [parent for _, parent in rows] == [2, 4, 2, 1]


async def test_a_cascade_does_not_remove_a_row_without_a_word(
    store: Store, changes: Changes
) -> None:
    """Table by table, the parent's delete would come last, and take the refused child along."""
    handler = await store.opened(columns={"parent": "integer", "number": "integer"})
    orders, items = changes, changes.elsewhere("items")
    await deliver(handler, orders.insert({"_id": 1, "number": 1}), items.insert({"_id": 0}))
    store.server.execute(
        "ALTER TABLE orders ADD UNIQUE (number);"
        "ALTER TABLE items ADD FOREIGN KEY (parent) REFERENCES orders (number) ON DELETE CASCADE"
    )
    await begin(handler)
    events = [items.update(0, {"n": 1}), orders.delete(1), items.insert({"_id": 1, "parent": 1})]
    assert list(await refused(handler, events)) == [2]


async def test_triggers_see_the_tables_in_the_order_of_the_stream(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened()
    orders, items = changes, changes.elsewhere("items")
    await deliver(handler, orders.insert({"_id": 0}), items.insert({"_id": 0}))
    store.server.execute(
        "CREATE TABLE seen (number serial, name text); GRANT ALL ON seen TO PUBLIC;"
        "GRANT ALL ON seen_number_seq TO PUBLIC;"
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO seen (name) VALUES (TG_TABLE_NAME); RETURN NULL; END $$;"
        "CREATE TRIGGER see AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION see();"
        "CREATE TRIGGER see AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION see()"
    )
    await begin(handler)
    await deliver(handler, *[each.insert({"_id": n}) for n in (1, 2) for each in (orders, items)])
    seen = store.server.query("SELECT name FROM seen ORDER BY number")
    assert seen == [("orders",), ("items",)] * 2


LIMIT = """
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT count(*) FROM new) > {most} THEN
            RAISE 'canceling statement due to statement timeout' USING ERRCODE = '57014';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER slow AFTER INSERT ON orders REFERENCING NEW TABLE AS new
        FOR EACH STATEMENT EXECUTE FUNCTION slow()
"""


async def test_a_batch_that_is_too_slow_is_divided_and_an_event_that_is_is_waited_for(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(ORDERS)
    store.server.execute(LIMIT.format(most=2))
    events = [changes.insert({"_id": n}) for n in range(4)]
    with pytest.raises(BatchTooLarge, match=r"statement timeout .SQLSTATE 57014."):
        await deliver(handler, *events)
    for half in (events[:2], events[2:]):
        await begin(handler)
        await deliver(handler, *half)
    assert len(store.orders) == 4
    store.server.execute("DROP FUNCTION slow CASCADE")
    store.server.execute(LIMIT.format(most=0))
    with pytest.raises(Unavailable, match="statement timeout"):
        await deliver(handler, changes.insert({"_id": 5}))
