"""Columns: every event comes back from them byte for byte, whatever the server sent."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import bson
import pyarrow as pa
import pytest
from bson import Code, Int64, Regex
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from service.handlers.parquet.columns import record_batch, schema
from service.handlers.parquet.layout import _MOST_LAYOUTS
from service.lake.segment import COLUMNS, Documents
from service.model.extended_json import to_json
from tests.lake import decoded, elements, plain, rebuilt
from tests.unit.engine.changes import change
from tests.unit.model.documents import EVERY_ID, documents, quick, timestamps, values

ABSENT = object()


def columns(*events: bytes | dict[str, Any], how: Documents = Documents.BSON) -> list[Any]:
    raws = [event if isinstance(event, bytes) else bson.encode(event) for event in events]
    batch = record_batch(raws, scope="orders", segment=7, ordinal=100, documents=how)
    assert batch.schema == schema(how)
    assert batch.column_names == list(COLUMNS)
    batch.validate(full=True)
    return plain(pa.Table.from_batches([batch]))


def check(*events: bytes | dict[str, Any]) -> list[Any]:
    """The rows, after each was turned back into its event."""
    raws = [event if isinstance(event, bytes) else bson.encode(event) for event in events]
    rows = columns(*raws)
    for raw, row in zip(raws, rows, strict=True):
        assert rebuilt(row) == elements(raw)
    return rows


WHOLE = change(
    5,
    operation="update",
    wallTime=DatetimeMS(1_764_500_005_123),
    fullDocument={"_id": 5, "a": {"$b.c": [1, None]}},
    fullDocumentBeforeChange={"_id": 5},
    updateDescription={"updatedFields": {"a": 1}, "removedFields": [], "truncatedArrays": []},
)


def test_each_field_has_its_column() -> None:
    (row,) = check(WHOLE)
    assert row == {
        "scope": "orders",
        "segment": 7,
        "ordinal": 100,
        "cluster_seconds": 1_764_500_005,
        "cluster_increment": 1,
        "token": bson.encode(WHOLE["_id"]),
        "wall_time": 1_764_500_005_123,
        "operation": "update",
        "database": "shop",
        "collection": "orders",
        "document_key": bson.encode({"_id": 5}),
        "full_document": bson.encode(WHOLE["fullDocument"]),
        "full_document_before_change": bson.encode({"_id": 5}),
        "update_description": bson.encode(WHOLE["updateDescription"]),
        "extra": None,
    }


def test_what_has_no_column_is_extra_in_its_order() -> None:
    more = {"lsid": {"id": 1}, "txnNumber": Int64(3), "to": {"db": "shop", "coll": "old"}}
    (row,) = check({**WHOLE, **more})
    assert row["extra"] == bson.encode(more)
    assert row["collection"] == "orders"


def test_rows_keep_their_places_among_other_layouts() -> None:
    shapes = [{}, {"txnNumber": Int64(1)}, {"fullDocument": {"x": "y" * 300}}, {"a": "x"}]
    events = [change(n, **random.Random(n).choice(shapes)) for n in range(300)]
    rows = check(*events)
    assert [row["ordinal"] for row in rows] == list(range(100, 400))
    assert [bson.decode(row["document_key"])["_id"] for row in rows] == list(range(300))


@pytest.mark.parametrize("field", ["operationType", "regex", "name"])
def test_what_a_layout_knows_is_compared_only_where_it_fits(field: str) -> None:
    """A long text of one event is not looked for in the short ones around it."""
    text = "x" * 100_000
    odd = {
        "operationType": change(0, operation=text),
        "regex": change(0, more=Regex(text)),
        "name": change(0, **{text: 1}),
    }
    tracemalloc.start()
    try:
        columns(odd[field], *(change(n) for n in range(1, 1000)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    check(odd[field], change(1))


def test_more_layouts_than_are_looked_for_are_walked_one_by_one() -> None:
    check(*(change(n, **{f"field{n}": n}) for n in range(3 * _MOST_LAYOUTS)))


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("documentKey", "document_key"),
        ("fullDocument", "full_document"),
        ("fullDocumentBeforeChange", "full_document_before_change"),
        ("updateDescription", "update_description"),
        ("clusterTime", "cluster_seconds"),
        ("wallTime", "wall_time"),
        ("ns", "database"),
    ],
)
@pytest.mark.parametrize("value", [ABSENT, None, "odd", 7, [1], Regex("a", "i"), Code("x", {})])
def test_absent_null_and_odd_fields(field: str, column: str, value: Any) -> None:
    """Null is kept apart from absent; an image that the server did not find is null."""
    event = {**WHOLE, field: value}
    if value is ABSENT:
        del event[field]
    row = check(WHOLE, event, WHOLE)[1]
    assert row[column] is None
    assert row["extra"] == (None if value is ABSENT else bson.encode({field: value}))


@pytest.mark.parametrize("value", [ABSENT, None, 7])
def test_an_event_without_an_operation_has_an_empty_one(value: Any) -> None:
    event = {**WHOLE, "operationType": value}
    if value is ABSENT:
        del event["operationType"]
    (row,) = check(event)
    assert row["operation"] == ""


@pytest.mark.parametrize(
    ("ns", "database", "collection", "whole"),
    [
        ({"db": "shop"}, "shop", None, True),
        ({"db": "shop", "coll": "orders"}, "shop", "orders", True),
        ({"coll": "orders", "db": "shop"}, "shop", "orders", False),
        ({"db": "shop", "coll": "orders", "more": 1}, "shop", "orders", False),
        ({"db": "shop", "coll": 7}, "shop", None, False),
        ({"coll": "orders"}, None, "orders", False),
        ({}, None, None, False),
    ],
)
def test_a_namespace_of_another_shape_is_kept_whole_beside_its_names(
    ns: Any, database: str | None, collection: str | None, whole: bool
) -> None:
    (row,) = check({**WHOLE, "ns": ns})
    assert (row["database"], row["collection"]) == (database, collection)
    assert (row["extra"] is None) == whole


def test_a_repeated_field_is_kept_with_the_others() -> None:
    once = bson.encode(WHOLE)
    again = bson.encode({"fullDocument": {"second": 1}})[4:-1]
    body = once[4:-1] + again
    event = (len(body) + 5).to_bytes(4, "little") + body + b"\0"
    (row,) = columns(event)
    assert row["full_document"] == bson.encode(WHOLE["fullDocument"])
    assert row["extra"] == bson.encode({"fullDocument": {"second": 1}})


def test_text_that_is_not_utf8_is_shown_and_kept() -> None:
    raw = bson.encode(WHOLE)
    wrong = raw.replace(b"update\0", b"upd\xffte\0").replace(b"orders\0", b"\xffrders\0")
    plain_row, row = check(WHOLE, wrong)
    assert (row["operation"], row["collection"]) == ("upd\ufffdte", "\ufffdrders")
    assert list(elements(row["extra"])) == [b"operationType", b"ns"]
    assert plain_row["extra"] is None


@pytest.mark.parametrize("ms", [-(2**63), -62_135_596_800_001, 253_402_300_800_000, 2**63 - 1])
def test_a_wall_time_beyond_the_calendar_is_kept_apart(ms: int) -> None:
    """Spark fails on timestamps that its calendar does not have."""
    (row,) = check({**WHOLE, "wallTime": DatetimeMS(ms)})
    assert row["wall_time"] is None


@pytest.mark.parametrize("ms", [-62_135_596_800_000, -1, 0, 253_402_300_799_999])
def test_other_wall_times_have_their_column(ms: int) -> None:
    (row,) = check({**WHOLE, "wallTime": DatetimeMS(ms)})
    assert (row["wall_time"], row["extra"]) == (ms, None)


@pytest.mark.parametrize("value", EVERY_ID.values(), ids=EVERY_ID)
def test_every_bson_type(value: Any) -> None:
    check({**WHOLE, "documentKey": {"_id": value}, "fullDocument": {"_id": 1, "v": value}})
    check({**WHOLE, "a field of a later server": value})


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "operationType": st.text("aé", min_size=1, max_size=4),  # none and an empty one look alike
    "clusterTime": timestamps,
    "wallTime": st.integers(-(2**63), 2**63 - 1).map(DatetimeMS),
    "fullDocument": documents,
    "fullDocumentBeforeChange": documents,
    "ns": st.just({"db": "shop", "coll": "orders"}),
    "documentKey": documents,
    "updateDescription": documents,
}


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    """Fields with columns and without, in any order, now and then with another type."""
    event: dict[str, Any] = {"_id": draw(documents)}
    for name in draw(st.lists(st.sampled_from([*FIELDS, "lsid", "to"]), unique=True)):
        odd = name not in FIELDS or draw(st.integers(0, 9)) == 9
        event[name] = draw(values if odd else FIELDS[name])
    return event


@quick
@given(st.lists(events(), min_size=1, max_size=6))
def test_all_columns_together_are_the_event(some: list[dict[str, Any]]) -> None:
    check(*some)


@pytest.mark.parametrize("how", [Documents.CANONICAL, Documents.RELAXED])
def test_documents_as_text(how: Documents) -> None:
    event = {**WHOLE, "fullDocument": {"_id": 5, **EVERY_ID}, "txnNumber": Int64(1)}
    absent = change(6)
    row, other = columns(event, absent, how=how)
    canonical = how is Documents.CANONICAL
    for column, document in [
        ("document_key", event["documentKey"]),
        ("full_document", event["fullDocument"]),
        ("update_description", event["updateDescription"]),
        ("extra", {"txnNumber": Int64(1)}),
    ]:
        assert row[column] == to_json(bson.encode(document), canonical=canonical)
    assert row["token"] == bson.encode(WHOLE["_id"])
    assert (other["full_document"], other["extra"]) == (None, None)
    if canonical:
        options: CodecOptions[Any] = CodecOptions(
            datetime_conversion=DatetimeConversion.DATETIME_MS
        )
        again = decoded(row["extra"])
        assert bson.encode(again, codec_options=options) == bson.encode({"txnNumber": Int64(1)})


@pytest.mark.parametrize("event", [{**WHOLE, "_id": 7}, {"operationType": "insert"}, {}])
def test_an_event_without_a_token_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="resume token"):
        columns(WHOLE, event)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("n", range(0, 180, 3))
def test_bytes_that_are_no_bson_are_refused(place: int, n: int) -> None:
    """A length that leads out of its event is never followed into another one."""
    events = [bson.encode(WHOLE)] * 3
    wrong = bytearray(events[place])
    wrong[n] ^= 0xFF
    events[place] = bytes(wrong)
    try:
        rows = columns(*events)
    except ValueError:
        return
    for index in {0, 1, 2} - {place}:
        assert rebuilt(rows[index]) == elements(events[index])
