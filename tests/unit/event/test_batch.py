"""A batch of raw events says the same as its decoded events do."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event import RawBatch
from tailrace.event.batch import Events
from tailrace.model import ResumeToken
from tests.scripted.wire import in_order
from tests.unit.event.documents import batch_of, documents, quick
from tests.unit.event.events import events


@quick
@given(st.lists(events(), min_size=1, max_size=4))
def test_the_last_event_is_read_as_decoding_would(found: list[dict[str, Any]]) -> None:
    batch = batch_of([in_order(event) for event in found])
    last, event = batch.last, found[-1]
    assert last is not None
    assert last.token == ResumeToken.of(event["_id"])
    assert last.cluster_time == event.get("clusterTime")
    assert last.operation == event.get("operationType", "")


@quick
@given(st.lists(events(), min_size=1, max_size=4))
def test_handlers_that_share_keys_read_what_one_alone_reads(found: list[dict[str, Any]]) -> None:
    slice_ = batch_of([in_order(event) for event in found]).part(0, 4)
    alone = [
        (event.key, event.operation_type, bson.encode(event.document)) for event in slice_.events()
    ]
    for _ in range(2):
        for event, read in zip(slice_.events(several=True), alone, strict=True):
            document = bson.encode(event.document)  # NaN is not equal to itself
            assert (event.key, event.operation_type, document) == read
            event.document.clear()  # seen by this handler only
    assert {key for _, key in slice_.keys.values()} == {key for key, *_ in alone}


@quick
@given(st.lists(documents, max_size=9), st.integers(1, 4))
def test_slices_are_the_batch_in_order(events: list[dict[str, Any]], size: int) -> None:
    encoded = [bson.encode(event) for event in events]
    batch = batch_of(encoded)
    slices = list(batch.slices(size))
    assert all(0 < len(slice_) <= size for slice_ in slices)
    assert sum(len(slice_) for slice_ in slices) == len(batch) == len(events)
    names = sum(len(f"\x03{first}\0") for first in range(size, len(events), size))
    assert sum(slice_.size for slice_ in slices) + names == batch.size, "what stands between slices"
    assert [raw for slice_ in slices for raw in slice_.raw()] == encoded


def test_more_events_than_a_slice_holds_keep_their_order() -> None:
    batch = batch_of([{"_id": {"_data": str(n)}, "n": n} for n in range(1000)])
    assert [event.document["n"] for event in batch.events()] == list(range(1000))
    assert [len(slice_) for slice_ in batch.slices()] == [64] * 15 + [40]


def test_an_empty_batch_has_a_position_and_nothing_else() -> None:
    batch = batch_of([], token={"_data": "82"})
    assert (len(batch), batch.size, batch.last) == (0, 0, None)
    assert (batch.slices(), batch.events(), batch.operations()) == ([], [], {})
    assert batch.token == ResumeToken.of({"_data": "82"})
    assert RawBatch(b"", [], None).operations() == {}


@pytest.mark.parametrize("token", [None, 1, "text"], ids=["missing", "number", "text"])
def test_a_token_that_is_no_document_is_none(token: Any) -> None:
    event = {"operationType": "insert"} if token is None else {"_id": token}
    last = batch_of([event]).last
    assert last is not None
    assert last.token is None


@quick
@given(st.lists(st.lists(documents, min_size=1, max_size=4), max_size=4), st.data())
def test_events_of_several_slices_are_one_sequence(
    replies: list[list[dict[str, Any]]], data: st.DataObject
) -> None:
    encoded = [[bson.encode(document) for document in one] for one in replies]
    events = Events([slice_ for one in encoded for slice_ in batch_of(one).slices(3)])
    expected = [raw for one in encoded for raw in one]
    assert len(events) == len(expected)
    assert list(events.raw()) == [event.raw for event in events] == expected
    assert [event.raw for event in reversed(events)] == expected[::-1]
    first = data.draw(st.integers(0, len(expected)))
    assert [event.raw for event in events[first : first + 3]] == expected[first : first + 3]
    if expected:
        index = data.draw(st.integers(-len(expected), len(expected) - 1))
        assert events[index].raw == expected[index]
    with pytest.raises(IndexError):
        events[len(expected)]


def test_events_are_made_anew_each_time() -> None:
    """What one attempt has changed in them, the next does not see."""
    events = Events(list(batch_of([{"_id": {"_data": "a"}, "n": [1]}]).slices()))
    events[0].document["n"].append(2)
    assert next(iter(events)).document["n"] == [1]
