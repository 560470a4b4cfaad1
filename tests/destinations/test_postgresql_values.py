"""Documents and declared columns in PostgreSQL: odd keys, odd values, and what is refused."""

from math import inf, nan
from typing import Any

import bson
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

from tailrace import Refused
from tailrace.event import ChangeEvent
from tailrace.testing import Changes
from tests.destinations.postgresql_store import Store
from tests.handlers import deliver

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
    await deliver(handler, changes.insert(document))
    await deliver(handler, changes.insert({"_id": 2}))
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
    labels = {"scope": "orders", "handler": "it"}
    assert store.registry.get_sample_value("tailrace_column_misfits_total", labels) == 0
    events = [changes.insert({"_id": 1, "total": inf}), changes.insert({"_id": 2, "total": 1})]
    if on_misfit == "null":
        await deliver(handler, *events)
        assert store.server.query("SELECT total FROM orders ORDER BY key") == [(None,), (1,)]
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
