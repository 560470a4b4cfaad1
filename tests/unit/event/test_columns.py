"""Columns: every event comes back from them byte for byte, whatever the server sent."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import bson
import pytest
from bson import Code, Int64, ObjectId
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event.columns import NAMES, cut
from tailrace.event.extended_json import to_json
from tailrace.lake.segment import COLUMNS, Documents, LogicalType
from tests.lake import elements, rebuilt
from tests.unit.engine.changes import change
from tests.unit.event.documents import EVERY_ID, quick, timestamps, values
from tests.unit.event.events import SURROUNDINGS, as_mongod_makes_it, events

ABSENT = object()
LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(unicode_decode_error_handler="replace")


def columns(*events: bytes | dict[str, Any], how: Documents = Documents.BSON) -> list[Any]:
    """The rows, with text as text."""
    raws = [event if isinstance(event, bytes) else bson.encode(event) for event in events]
    found = cut(raws, how)
    assert tuple(found) == NAMES
    text = (
        {LogicalType.STRING}
        if how is Documents.BSON
        else {LogicalType.STRING, LogicalType.DOCUMENT}
    )
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
        ("operationType", "operation"),
    ],
)
@pytest.mark.parametrize("value", [ABSENT, None, 7, [1], Code("x", {})])
def test_absent_null_and_odd_fields(field: str, column: str, value: Any) -> None:
    """Null is kept apart from absent; an image that the server did not find is null."""
    event = {**WHOLE, field: value}
    if value is ABSENT:
        del event[field]
    row = check(WHOLE, event, WHOLE)[1]
    assert not row[column]
    assert row["extra"] == (None if value is ABSENT else bson.encode({field: value}))


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


@pytest.mark.parametrize(("ms", "beyond"), [(-62_135_596_800_000, -1), (253_402_300_799_999, 1)])
def test_a_wall_time_beyond_the_calendar_is_kept_apart(ms: int, beyond: int) -> None:
    """Spark fails on timestamps that its calendar does not have."""
    times = [DatetimeMS(ms), DatetimeMS(ms + beyond)]
    row, other = check(*({**WHOLE, "wallTime": time} for time in times))
    assert (row["wall_time"], row["extra"], other["wall_time"]) == (ms, None, None)


def test_documents_as_text() -> None:
    event = {**WHOLE, "fullDocument": {"_id": 5, **EVERY_ID}, "txnNumber": Int64(1)}
    absent = change(6)
    row, other = columns(event, absent, how=Documents.CANONICAL)
    for column, document in [
        ("document_key", event["documentKey"]),
        ("full_document", event["fullDocument"]),
        ("update_description", event["updateDescription"]),
        ("extra", {"txnNumber": Int64(1)}),
    ]:
        assert row[column] == to_json(bson.encode(document), canonical=True)
    assert row["token"] == bson.encode(WHOLE["_id"])
    assert (other["full_document"], other["extra"]) == (None, None)


@pytest.mark.parametrize("event", [{**WHOLE, "_id": 7}, {"operationType": "insert"}, {}])
def test_an_event_without_a_token_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="resume token"):
        columns(WHOLE, event)


IMAGE = {"fullDocument": {"_id": 5, "ns": {"db": "shop", "coll": "no"}, "documentKey": {}}}
PRE_IMAGE = {"fullDocumentBeforeChange": {"_id": 5, "a": "x" * 300}}
NO_IMAGE, NO_PRE_IMAGE = {"fullDocument": None}, {"fullDocumentBeforeChange": None}


def mongods(surroundings: str, *last: dict[str, Any], key: Any = 5) -> dict[str, Any]:
    """An update in those surroundings, with more at its end."""
    event = as_mongod_makes_it(surroundings, "delete", {"region": "eu", "_id": key})
    for more in last:
        event |= more
    return event


IN_ORDER = {
    **{each: as_mongod_makes_it(each, "insert", {"_id": ObjectId()}) for each in SURROUNDINGS},
    "a document that is gone": as_mongod_makes_it("expanded", "update", {"_id": 5}),
    "by way of mongos": mongods("plain", IMAGE),
    "both images": mongods("in a transaction", PRE_IMAGE, IMAGE),
    "images that are gone": mongods("plain", NO_PRE_IMAGE, NO_IMAGE),
    "no wall time": mongods("before 6.0", PRE_IMAGE),
    "key of many bytes": mongods("plain", key="x" * 300),
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
@given(events(), st.sampled_from([*WHOLE, "to"]), values | timestamps, st.integers(0, 12))
def test_all_columns_together_are_the_event(
    event: dict[str, Any], name: str, value: Any, place: int
) -> None:
    """Also with a value of any type in any field, at any place."""
    event["operationType"] = event["operationType"] or "insert"  # none and an empty one look alike
    check(encoded(event.items()))
    if name != "_id" and (name, value) != ("operationType", ""):
        fields = [(key, each) for key, each in event.items() if key != name]
        check(encoded([*fields[:place], (name, value), *fields[place:]]))


@pytest.mark.parametrize("event", [WHOLE, *IN_ORDER.values()])
def test_an_event_that_is_cut_off_is_refused(event: dict[str, Any]) -> None:
    """Also where its own length says what is left of it."""
    raw = encoded(event.items())
    for size in range(len(raw)):
        for left in (raw[:size], size.to_bytes(4, "little") + raw[4:size]):
            with pytest.raises(ValueError, match=r"BSON|resume token"):
                cut([left], Documents.BSON)
