"""The rows of PostgreSQL compared with documents: nothing equal differs, and every damage does."""

from math import inf, nan
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, ObjectId

from tailrace import Unavailable
from tailrace.testing import Changes
from tests.destinations.comparing import ORDERS, Found, compared, read_in_parts
from tests.destinations.postgresql_store import SHOP, Store
from tests.destinations.test_postgresql_values import COLUMNS, IDS, ODD
from tests.handlers import OWNER, deliver

ODD_VALUES = {name: value for name, (_, value) in ODD.items()}
NUMBERS = (1, 1.0, Int64(1), Decimal128("1"), Decimal128("1.00"), 0.0, -0.0, 1e16, 1.5e-7, nan)
FULL = {
    "total": Decimal128("12.345"),
    "at": bson.DatetimeMS(9_224_318_015_999_999),
    "customer": {"name": ObjectId()},
    "count": 5.0,
    "ratio": -0.0,
    "small": 0.1,
    "ok": True,
    "uuid": "12345678-1234-4234-8234-123456789012",
    "raw": b"ab",
    "more": [1, {"b": -0.0, "a": 1e16}],
    "big": Decimal128("1E+6111"),
}


async def test_documents_of_every_kind_are_equal_to_their_rows(
    store: Store, changes: Changes
) -> None:
    handler = await store.opened(columns=COLUMNS, nul="replace", soft_delete=True)
    documents = [{"_id": each, "n": 1} for each in IDS]
    documents += [{"_id": f"n{n}", "n": each, "big": each} for n, each in enumerate(NUMBERS)]
    documents += [{"_id": "odd", **ODD_VALUES}, {"_id": "full", **FULL}, {"_id": "nul", "a": "\0"}]
    documents += [{"_id": "misfit", "count": "x", "total": inf}, {"_id": "gone"}]
    await deliver(handler, *[changes.insert(each) for each in documents])
    await deliver(handler, changes.delete("gone"))
    found = await compared(handler, changes)
    assert not found, found
    assert found.position is not None


async def test_what_write_refuses_is_refused(store: Store, changes: Changes) -> None:
    handler = await store.opened(columns={"total": "numeric"}, on_misfit="refuse")
    await deliver(handler, changes.insert({"_id": 1, "total": 1}))
    changes.insert({"_id": 2, "total": "much"})
    changes.insert({"_id": 3, "text": "\0"})
    deep: Any = 1
    for _ in range(90):
        deep = [deep]
    await deliver(handler, changes.insert({"_id": 4, "deep": deep}))
    found = await compared(handler, changes)
    assert list(found.refused) == [2, 3]
    assert "does not fit numeric" in found.refused[2]
    assert not [*found.different, *found.missing, *found.too_many]


async def test_a_key_with_the_shard_key_is_no_difference(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    await deliver(handler, *[changes.insert({"_id": n}) for n in range(3)])
    sharded = """replace(key, '{"_id"', '{"region":"a","_id"')"""
    store.server.execute(f"UPDATE orders SET key = {sharded}")
    assert not await compared(handler, changes)
    store.server.execute("UPDATE orders SET key = replace(key, '2', '1') WHERE key LIKE '%\"2\"%'")
    assert (await compared(handler, changes)).different == {2: ["key._id", "key.region"]}


async def test_large_rows_are_not_read_at_once(store: Store, changes: Changes) -> None:
    await read_in_parts(await store.opened(), changes)


async def test_without_a_table_nothing_is_there(store: Store, changes: Changes) -> None:
    handler = await store.opened(SHOP)
    changes.insert({"_id": 1})
    assert await compared(handler, changes) == Found(missing=[1])


async def test_a_log_cannot_be_asked(store: Store) -> None:
    assert (await store.opened(log="changes")).comparison is None


SWAPPED = """
    document = (SELECT document FROM orders other WHERE other.total = orders.total::int # 1)
"""
CHANGED = {
    "document = jsonb_set(document, '{n}', '999')": ["document.n"],
    "document = document - 'text'": ["document.text"],
    """document = document || '{"more": null}'""": ["document.more"],
    "document = jsonb_set(document, '{n}', ((document ->> 'n') || '.0')::jsonb)": ["document.n"],
    "document = jsonb_set(document, '{n}', to_jsonb(document ->> 'n'))": ["document.n"],
    "document = jsonb_set(document, '{is}', '1')": ["document.is"],
    "document = '[]'": ["document"],
    "total = total + 0.01": ["total"],
    "total = NULL": ["total"],
    "ratio = '-0'": ["ratio"],
    """key = '{"_id":{"$numberInt":"9999"}}'""": ["key._id"],
    "document = (SELECT document FROM orders WHERE total = 0), total = 0": [
        *("document.n", "document._id", "document.total", "total"),
    ],
    SWAPPED: ["document.n", "document._id", "document.total"],
}
"""By what somebody sets in a row, the fields that differ."""
GONE = ("DELETE FROM orders WHERE", "UPDATE orders SET deleted_at = now() WHERE")
ADDED = """
    INSERT INTO orders SELECT {}, 0, {}, document, now() FROM orders WHERE
"""
TOO_MANY = (
    ADDED.format("'\\xfe' || sha256(tailrace_id)", "key"),  # nobody can tell which _id it is
    ADDED.format("sha256(tailrace_id)", "key"),
    ADDED.format("'\\x02'::bytea || '\\x0200000041'::bytea || tailrace_id", "NULL"),
    ADDED.format("set_byte(tailrace_id, 8, 1)", "'of another number'"),
)


async def test_a_thousand_sabotaged_rows_are_all_found(store: Store, changes: Changes) -> None:
    columns = {"total": "numeric(9,2)", "ratio": "double precision"}
    handler = await store.opened(columns=columns, soft_delete=True)
    documents = [
        {"_id": n, "n": n, "text": "x", "is": True, "total": n, "ratio": 0.0} for n in range(1500)
    ]
    events = [changes.insert(each) for each in documents]
    await deliver(handler, *events)
    expected = Found(different={}, missing=[], too_many=[])
    ranges = (range(begin, begin + 60) for begin in range(100, 1500, 60))
    for column in CHANGED:
        ids = next(ranges)
        store.server.execute(f"UPDATE orders SET {column} WHERE {between(ids)}")
        expected.different |= dict.fromkeys(ids, CHANGED[column])
    for statement in GONE:
        ids = next(ranges)
        store.server.execute(f"{statement} {between(ids)}")
        expected.missing += ids
    for statement in TOO_MANY:
        store.server.execute(f"{statement} {between(next(ranges))}")
    found = await compared(handler, changes)
    assert found.different == expected.different
    assert sorted(found.missing) == expected.missing
    assert len(found.too_many) == 60 * (len(TOO_MANY) - 1)
    assert 60 * (len(CHANGED) + len(GONE) + len(TOO_MANY) - 1) > 1000


def between(ids: range) -> str:
    return f"(document ->> '_id')::int BETWEEN {ids[0]} AND {ids[-1]}"


async def test_a_server_that_is_down_is_waited_for(store: Store, changes: Changes) -> None:
    handler = await store.opened()
    await deliver(handler, changes.insert({"_id": 1}))
    assert handler.comparison is not None
    async with handler.comparison(OWNER) as comparison:
        store.server.stop()
        with pytest.raises(Unavailable):
            await comparison.stored(ORDERS, [])
    with pytest.raises(Unavailable):
        await compared(handler, changes)
    store.server.start()
    assert not await compared(handler, changes)
