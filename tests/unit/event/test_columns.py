"""Columns: every event comes back from them byte for byte, whatever the server sent."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import bson
import pytest
from bson import Binary, Code, Int64, ObjectId, Regex
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event.columns import NAMES, cut
from tailrace.event.extended_json import to_json
from tailrace.lake.segment import COLUMNS, Documents, Kind
from tests.lake import decoded, elements, rebuilt
from tests.unit.engine.changes import change
from tests.unit.event.documents import EVERY_ID, documents, quick, timestamps, values

ABSENT = object()
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(unicode_decode_error_handler="replace")


def columns(*events: bytes | dict[str, Any], how: Documents = Documents.BSON) -> list[Any]:
    """The rows, with text as text."""
    raws = [event if isinstance(event, bytes) else bson.encode(event) for event in events]
    found = cut(raws, how)
    assert tuple(found) == NAMES
    text = {Kind.STRING} if how is Documents.BSON else {Kind.STRING, Kind.DOCUMENT}
    for name, column in found.items():
        if COLUMNS[name] in text:
            found[name] = [value if value is None else value.decode() for value in column]
    return [dict(zip(NAMES, row, strict=True)) for row in zip(*found.values(), strict=True)]


def check(*events: bytes | dict[str, Any]) -> list[Any]:
    """The rows, after each was turned back into its event."""
    raws = [event if isinstance(event, bytes) else bson.encode(event) for event in events]
    rows = columns(*raws)
    for raw, row in zip(raws, rows, strict=True):
        assert rebuilt(row) == elements(raw)
    return rows


def encoded(fields: Iterable[tuple[str, Any]]) -> bytes:
    """The fields as they stand: also where the token is not the first of them, or repeated."""
    body = b"".join(bson.encode({name: value})[4:-1] for name, value in fields)
    return (len(body) + 5).to_bytes(4, "little") + body + b"\0"


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


def test_no_events_are_columns_without_values() -> None:
    assert cut([], Documents.BSON) == {name: [] for name in NAMES}


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
    """The last one counts, as it does for decoding."""
    (row,) = columns(encoded([*WHOLE.items(), ("fullDocument", {"second": 1})]))
    assert row["full_document"] == bson.encode({"second": 1})
    assert row["extra"] == bson.encode({"fullDocument": WHOLE["fullDocument"]})


def test_text_that_is_not_utf8_is_shown_and_kept() -> None:
    raw = bson.encode(WHOLE)
    wrong = raw.replace(b"update\0", b"upd\xffte\0").replace(b"orders\0", b"\xffrders\0")
    plain_row, row = check(WHOLE, wrong)
    assert (row["operation"], row["collection"]) == ("upd\ufffdte", "\ufffdrders")
    assert list(elements(row["extra"])) == [b"operationType", b"ns"]
    assert plain_row["extra"] is None


@pytest.mark.parametrize("ms", [-62_135_596_800_000, -1, 253_402_300_799_999])
def test_a_wall_time_beyond_the_calendar_is_kept_apart(ms: int) -> None:
    """Spark fails on timestamps that its calendar does not have."""
    (row,) = check({**WHOLE, "wallTime": DatetimeMS(ms)})
    assert (row["wall_time"], row["extra"]) == (ms, None)
    for beyond in (-62_135_596_800_001, 253_402_300_800_000, -(2**63), 2**63 - 1):
        (row,) = check({**WHOLE, "wallTime": DatetimeMS(beyond)})
        assert row["wall_time"] is None


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


EXPANDED = {"collectionUUID": Binary(b"c" * 16, 4)}
TRANSACTION = {
    "txnNumber": Int64(3),
    "lsid": {"id": Binary(b"i" * 16, 4), "uid": b"u" * 32},
}
HEAD = {name: WHOLE[name] for name in ("_id", "operationType", "clusterTime")}
WALL_TIME = {"wallTime": WHOLE["wallTime"]}
IMAGE = {"fullDocument": {"_id": 5, "ns": {"db": "shop", "coll": "no"}, "documentKey": {}}}
NAMED = {
    "ns": {"db": "shop", "coll": "orders"},
    "documentKey": {"_id": ObjectId(b"o" * 12)},
}
UPDATE = {"updateDescription": WHOLE["updateDescription"]}
PRE_IMAGE = {"fullDocumentBeforeChange": {"_id": 5, "a": "x" * 300}}
NO_IMAGE, NO_PRE_IMAGE = {"fullDocument": None}, {"fullDocumentBeforeChange": None}


def in_order(
    *parts: dict[str, Any], operation: str = "update", first: Any = (), **more: Any
) -> dict[str, Any]:
    """An event of those parts, one behind the other; ``more`` replaces what is there."""
    event: dict[str, Any] = dict(first)
    for part in (HEAD, *parts):
        event |= part
    return event | {"operationType": operation} | more


IN_ORDER = {
    "update": in_order(WALL_TIME, IMAGE, NAMED, UPDATE),
    "update without a document": in_order(WALL_TIME, NAMED, UPDATE),
    "update of a document that is gone": in_order(WALL_TIME, NO_IMAGE, NAMED, UPDATE),
    "update by way of mongos": in_order(WALL_TIME, NAMED, UPDATE, IMAGE),
    "update with both images": in_order(WALL_TIME, IMAGE, NAMED, UPDATE, PRE_IMAGE),
    "update with both images at the end": in_order(WALL_TIME, NAMED, UPDATE, PRE_IMAGE, IMAGE),
    "update without its images": in_order(WALL_TIME, NAMED, UPDATE, NO_PRE_IMAGE, NO_IMAGE),
    "insert": in_order(WALL_TIME, IMAGE, NAMED, operation="insert"),
    "replace": in_order(WALL_TIME, IMAGE, NAMED, PRE_IMAGE, operation="replace"),
    "delete": in_order(WALL_TIME, NAMED, operation="delete"),
    "delete with a pre-image": in_order(WALL_TIME, NAMED, PRE_IMAGE, operation="delete"),
    "delete without a pre-image": in_order(WALL_TIME, NAMED, NO_PRE_IMAGE, operation="delete"),
    "expanded": in_order(EXPANDED, WALL_TIME, IMAGE, NAMED, UPDATE),
    "in a transaction": in_order(EXPANDED, WALL_TIME, IMAGE, NAMED, UPDATE, first=TRANSACTION),
    "in a transaction, of a test": in_order(WALL_TIME, EXPANDED, TRANSACTION, IMAGE, NAMED),
    "no wall time": in_order(IMAGE, NAMED, UPDATE),
    "no wall time in a transaction": in_order(IMAGE, NAMED, operation="insert", first=TRANSACTION),
    "key of many bytes": in_order(
        WALL_TIME, NAMED, operation="delete", documentKey={"region": "x" * 300, "_id": 5}
    ),
}


@pytest.mark.parametrize("event", IN_ORDER.values(), ids=IN_ORDER)
def test_events_in_mongods_order(event: dict[str, Any]) -> None:
    """Every byte is wrong once, in three ways; one event less, and more, than it says."""
    raw = encoded(event.items())
    check(raw)
    wrong = [raw[:-1], raw + b"\0", raw[:-1] + b"\x0ax\0\0"]
    for place in range(len(raw)):
        for flip in (0x01, 0x80, 0xFF):
            wrong.append(bytes((*raw[:place], raw[place] ^ flip, *raw[place + 1 :])))
    for other in wrong:
        try:
            bson.decode(other, codec_options=LENIENT)
        except (bson.errors.BSONError, ValueError, OverflowError):
            with suppress(ValueError):
                columns(other)
        else:
            if isinstance(bson.decode(other, codec_options=LENIENT).get("_id"), dict):
                check(other)


@quick
@given(
    st.sampled_from([*IN_ORDER.values()]),
    st.sampled_from([*WHOLE, *EXPANDED, *TRANSACTION, "to"]),
    values | documents | timestamps,
    st.integers(0, 12),
)
def test_one_more_field_at_any_place(
    event: dict[str, Any], name: str, value: Any, before: int
) -> None:
    """Its elements are all there: as many bytes, whichever of two of a name the column has."""
    fields = [(key, each) for key, each in event.items() if key != name]
    if name == "_id" and not isinstance(value, dict):
        return
    check(encoded([*fields[:before], (name, value), *fields[before:]]))


@pytest.mark.parametrize("event", [WHOLE, *IN_ORDER.values()])
def test_an_event_that_is_cut_off_is_refused(event: dict[str, Any]) -> None:
    """Also where its own length says what is left of it."""
    raw = encoded(event.items())
    for size in range(len(raw)):
        for left in (raw[:size], size.to_bytes(4, "little") + raw[4:size]):
            with pytest.raises(ValueError, match=r"BSON|resume token"):
                cut([left], Documents.BSON)
