"""The events that tests of handlers are made of."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, MaxKey, ObjectId
from bson.timestamp import Timestamp

from tailrace.event import Image, Namespace
from tailrace.testing import Changes


def test_the_documents_are_those_that_the_changes_leave() -> None:
    changes = Changes()
    changes.insert({"_id": 1, "lines": [{"n": 1}, {"n": 2}], "note": "x"})
    changes.update(1, {"lines.0.n": 5, "by.whom": "me"}, unset=["note"], truncate={"lines": 1})
    changes.insert({"_id": 2})
    changes.replace({"_id": 2, "state": "new"})
    changes.insert({"_id": 3})
    changes.delete(3)
    first = {"_id": 1, "lines": [{"n": 5}], "by": {"whom": "me"}}
    assert changes.documents == [first, {"_id": 2, "state": "new"}]


def test_an_update_tells_what_it_did_and_both_images() -> None:
    changes = Changes(before_change=True)
    changes.insert({"_id": 1, "a": 1, "b": [1, 2]})
    event = changes.update(1, {"a": 2}, truncate={"b": 1})
    assert event.update_description == {
        "updatedFields": {"a": 2},
        "removedFields": [],
        "truncatedArrays": [{"field": "b", "newSize": 1}],
    }
    assert event.full_document == {"_id": 1, "a": 2, "b": [1]}
    assert event.full_document_before_change == {"_id": 1, "a": 1, "b": [1, 2]}
    plain = Changes(full_document=False)
    plain.insert({"_id": 1})
    assert plain.update(1, {"a": 2}).full_document_image is Image.ABSENT


@pytest.mark.parametrize(
    "id",
    [
        *(1, Int64(2**40), 0.5, "text", b"bytes", None, True, MaxKey(), {"a": 1, "b": "x"}),
        *(ObjectId(), Decimal128("1.5"), Binary(b"u" * 16, 4), Timestamp(1, 2)),
        datetime(2026, 1, 1, tzinfo=UTC),
    ],
    ids=lambda id: type(id).__name__,
)
def test_an_id_may_have_any_type(id: Any) -> None:
    changes = Changes()
    events = [changes.insert({"_id": id}), changes.update(id, {"a": 1}), changes.read(id)]
    assert [event.document_key for event in events] == [{"_id": id}] * 3
    assert changes.delete(id).key == events[0].key != None  # noqa: E711 - all have the same key


def test_tokens_and_times_grow_with_each_change() -> None:
    changes = Changes()
    orders = [changes.insert({"_id": n}) for n in range(3)]
    events = [*orders, changes.elsewhere("items").insert({"_id": 1}), changes.drop()]
    for before, after in pairwise(events):
        assert before.token.precedes(after.token)
        assert before.cluster_time < after.cluster_time  # type: ignore[operator]
        assert after.token.cluster_time == after.cluster_time


def test_the_changes_of_a_transaction_share_their_time_session_and_number() -> None:
    changes = Changes()
    with changes.transaction():
        one, other = changes.insert({"_id": 1}), changes.insert({"_id": 2})
    alone = changes.insert({"_id": 3})
    assert one.cluster_time == other.cluster_time
    assert one.token.precedes(other.token)
    assert (one.lsid, one.txn_number) == (other.lsid, other.txn_number)
    assert one.lsid is not None
    assert alone.lsid is None
    assert other.cluster_time < alone.cluster_time  # type: ignore[operator]


def test_ddl_is_a_barrier_and_takes_the_documents_along() -> None:
    changes = Changes(expanded=True)
    changes.insert({"_id": 1})
    renamed = changes.rename("archive")
    archive = changes.elsewhere("archive")
    assert (renamed.to, renamed.is_ddl) == (Namespace("shop", "archive"), True)
    assert (changes.documents, archive.documents) == ([], [{"_id": 1}])
    created = changes.expanded("createIndexes", {"indexes": [{"key": {"x": 1}}]})
    assert created.operation_description == {"indexes": [{"key": {"x": 1}}]}
    assert created.collection_uuid != renamed.collection_uuid
    dropped = changes.drop_database()
    assert (dropped.operation_type, dropped.ns) == ("dropDatabase", Namespace("shop"))
    assert archive.documents == []
    assert changes.invalidate().operation_type == "invalidate"


def test_the_rows_of_a_snapshot_stand_between_barriers() -> None:
    changes = Changes()
    changes.insert({"_id": 1, "a": 2})
    events = [changes.snapshot_begin(), changes.read(1), changes.snapshot_end()]
    assert [event.operation_type for event in events] == ["snapshotBegin", "read", "snapshotEnd"]
    assert [event.is_ddl for event in events] == [True, False, True]
    assert events[1].full_document == {"_id": 1, "a": 2}


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda changes: changes.insert({"_id": 1}), "has a document with the _id 1"),
        (lambda changes: changes.update(2, {}), "has no document with the _id 2"),
        (lambda changes: changes.delete("1"), "has no document with the _id '1'"),
        (lambda changes: changes.insert({"a": 1}), "no _id"),
        (lambda changes: changes.expanded("creat"), "'creat' is not one of create, "),
    ],
)
def test_a_change_that_no_server_would_make_is_refused(mistake: Any, message: str) -> None:
    changes = Changes()
    changes.insert({"_id": 1})
    with pytest.raises((LookupError, ValueError), match=message):
        mistake(changes)
