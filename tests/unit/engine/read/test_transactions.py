"""Transactions that arrive in pieces are handed on whole."""

from typing import Any

import bson
import pytest
from bson import Binary, Int64
from bson.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.engine.handle.transaction import units
from tailrace.engine.read.transactions import Transactions
from tailrace.errors import ScopeHalted
from tailrace.event import ChangeEvent, RawBatch
from tailrace.event.batch import SLICE
from tailrace.model import ResumeToken
from tests.unit.engine.changes import EPOCH, Document, batch, change, number, time, token

LARGE = 1 << 20


def in_transaction(n: int, transaction: int, **fields: Any) -> Document:
    """Event ``n`` of a transaction; as on a server all its events have one cluster time."""
    session = {"id": Binary(transaction.to_bytes(16, "big"), 4), "uid": b"u" * 32}
    more = {"txnNumber": Int64(transaction), "lsid": session}
    return more | change(n, clusterTime=time(transaction)) | fields


def numbers(batch: RawBatch) -> list[int]:
    """The events' document keys, because events of a transaction share their time."""
    return [event.document["documentKey"]["_id"] for event in batch.events()]


def stream(lengths: list[int]) -> list[Document]:
    """Events of transactions of these lengths; length 0 is an event outside of transactions."""
    events: list[Document] = []
    for number_of_it, length in enumerate(lengths):
        for _ in range(max(length, 1)):
            n = len(events)
            events.append(in_transaction(n, number_of_it + 1) if length else change(n))
    return events


def _sessions(documents: list[Document]) -> list[Any]:
    return [document.get("txnNumber") for document in documents]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.lists(st.integers(0, 7), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_no_slice_ends_inside_a_transaction_and_nothing_is_lost(
    lengths: list[int], sizes: list[int], size: int
) -> None:
    documents = stream(lengths)
    transactions = Transactions("orders", LARGE, size)
    seen: list[int] = []
    at = turn = 0
    while at < len(documents):
        taken = documents[at : at + (sizes[turn % len(sizes)] or 1)]
        at += len(taken)
        turn += 1
        # Tokens of this kind have no readable time, as on servers other than mongod.
        reply = batch(taken, ResumeToken.of({"_data": f"token-{at}"}))
        whole, slices = transactions.cut(reply, SLICE)
        assert [n for slice_ in slices for n in _keys(slice_)] == numbers(whole)
        for slice_ in slices:
            keys = _keys(slice_)
            marks = _sessions(documents)
            last = keys[-1]
            if last + 1 < len(documents) and marks[last] is not None:
                assert marks[last + 1] != marks[last], "a slice ends inside a transaction"
            assert len(keys) <= max(size, max(lengths))
        seen += numbers(whole)
        held = len(seen) < at
        assert (whole.token is None) == held, "a position inside a transaction"
    end = batch([], token(at), operation_time=time(at))
    whole, _ = transactions.cut(end, SLICE)
    assert seen + numbers(whole) == list(range(len(documents)))
    assert whole.token == token(at)


def _keys(slice_: Any) -> list[int]:
    return [bson.decode(raw)["documentKey"]["_id"] for raw in slice_.raw()]


def test_a_token_of_a_later_time_ends_a_transaction_at_once() -> None:
    transactions = Transactions("orders", LARGE)
    events = [in_transaction(0, 5), in_transaction(1, 5)]
    whole, _ = transactions.cut(batch(events, token(6)), SLICE)
    assert numbers(whole) == [0, 1]
    assert whole.token == token(6)


def test_what_two_shards_committed_at_one_time_is_one_unit() -> None:
    """The merged stream may mix the events of both shards."""
    mixed = [in_transaction(n, 1 + n % 2, clusterTime=time(3)) for n in range(4)]
    transactions = Transactions("orders", LARGE)
    _, slices = transactions.cut(batch([*mixed, change(4)]), 1)
    assert [_keys(slice_) for slice_ in slices] == [[0, 1, 2, 3], [4]]


def test_fragments_of_a_split_event_end_no_transaction() -> None:
    """While the stream joins fragments it returns an empty batch without a token or a time."""
    transactions = Transactions("orders", LARGE)
    whole, _ = transactions.cut(
        batch([in_transaction(0, 5)], ResumeToken.of({"_data": "x"})), SLICE
    )
    assert numbers(whole) == []
    whole, _ = transactions.cut(RawBatch(b"", [], None), SLICE)
    assert (numbers(whole), whole.token) == ([], None)
    whole, _ = transactions.cut(batch([in_transaction(1, 5), change(2)]), SLICE)
    assert numbers(whole) == [0, 1, 2]


def test_one_that_is_larger_than_all_that_may_be_in_flight_halts_the_scope() -> None:
    transactions = Transactions("orders", 100)
    with pytest.raises(ScopeHalted) as caught:
        transactions.cut(batch([in_transaction(0, 5)], token(5)), SLICE)
    message = str(caught.value)
    assert "scope 'orders'" in message
    assert "delivery.max_in_flight_bytes allows 100" in message
    assert "transactions: separate" in message


def test_a_field_of_a_document_with_the_same_name_is_no_transaction() -> None:
    event = change(0, fullDocument={"txnNumber": Int64(1), "lsid": {}})
    whole, slices = Transactions("orders", LARGE).cut(batch([event, change(1)]), SLICE)
    assert (numbers(whole), len(slices)) == ([0, 1], 1)
    assert whole.token is not None


def test_units_of_decoded_events() -> None:
    documents = [change(0), in_transaction(1, 7), in_transaction(2, 7), change(3), change(4)]
    events = [ChangeEvent.from_document(document) for document in documents]
    assert [[e.document_key["_id"] for e in unit if e.document_key] for unit in units(events)] == [
        [0],
        [1, 2],
        [3],
        [4],
    ]
    assert number(events[0]) == 0
    assert events[1].cluster_time == Timestamp(EPOCH + 7, 1)
    assert units([]) == []
