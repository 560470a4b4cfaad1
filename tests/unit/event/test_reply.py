"""Walking a server's reply: the same as decoding it, without doing so."""

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import ConnectionFailed
from tailrace.event import RawBatch
from tailrace.event.reply import read_reply
from tests.unit.event.documents import documents, quick, reply, timestamps

TOKEN = {"_data": "82AB"}


@quick
@given(
    st.lists(documents, max_size=5),
    st.none() | documents,
    st.none() | timestamps,
    st.integers(0, 2**63 - 1),
    st.sampled_from(["firstBatch", "nextBatch"]),
    st.booleans(),
)
def test_a_walk_finds_what_the_codec_decodes(
    events: list[dict[str, Any]],
    token: dict[str, Any] | None,
    time: Timestamp | None,
    cursor_id: int,
    name: str,
    of_events: bool,
) -> None:
    encoded = [bson.encode(event) for event in events]
    wire = None if token is None else RawBSONDocument(bson.encode(token))
    raw = reply(encoded, token=wire, time=time, cursor_id=cursor_id, name=name)
    found = read_reply(raw, of_events=of_events)
    assert len(found) == len(events)
    assert found.cursor_id == cursor_id
    assert found.namespace == "shop.orders"
    assert found.closed is (cursor_id == 0)
    assert found.operation_time == time
    post_batch = found.post_batch_token
    assert (post_batch.raw if post_batch else None) == (None if wire is None else wire.raw)
    batch = RawBatch(found.buffer, found.bounds, None)
    assert [event for slice_ in batch.slices() for event in slice_.raw()] == encoded


def test_fields_may_come_in_any_order_and_a_cursor_id_may_be_small() -> None:
    cursor = {"postBatchResumeToken": TOKEN, "firstBatch": [{"_id": TOKEN}], "atClusterTime": 1}
    answer = bson.encode({"ok": 1.0, "cursor": {**cursor, "ns": "shop.orders", "id": 9}})
    found = read_reply(answer)
    assert (found.cursor_id, found.namespace, found.collection) == (9, "shop.orders", "orders")
    assert len(found.bounds) == 2


@pytest.mark.parametrize("of_events", [True, False], ids=["events", "documents"])
@pytest.mark.parametrize(
    "cursor",
    [
        *(None, 1, {}, {"id": 1}, {"firstBatch": []}, {"id": 1.0, "firstBatch": []}),
        *({"id": "x", "firstBatch": []}, {"id": 1, "firstBatch": {"0": {}}}),
        {"id": 1, "firstBatch": [{}, 1]},
    ],
    ids=str,
)
def test_a_reply_without_a_cursor_is_a_broken_connection(cursor: Any, of_events: bool) -> None:
    for answer in ({"cursor": cursor}, {"ok": 1}):
        with pytest.raises(ConnectionFailed, match="not a cursor"):
            read_reply(bson.encode(answer), of_events=of_events)


@quick
@given(st.lists(documents, max_size=3), st.data())
def test_damaged_bytes_are_a_broken_connection_or_unnoticed(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    raw = bytearray(reply(events, token=TOKEN, time=Timestamp(1, 2)))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(raw)) | st.just(len(raw)))
    try:
        found = read_reply(bytes(raw[:cut]), of_events=data.draw(st.booleans()))
    except ConnectionFailed:
        return
    bounds = list(found.bounds)
    assert bounds == sorted(set(bounds))
    assert not bounds or bounds[-1] < cut


@pytest.mark.parametrize("of_events", [True, False], ids=["events", "documents"])
def test_a_document_of_no_length_does_not_hang(of_events: bool) -> None:
    raw = reply([{}])
    empty = b"\x030\0\x05\0\0\0\0"
    assert empty in raw
    with pytest.raises(ConnectionFailed, match="malformed BSON"):
        read_reply(raw.replace(empty, b"\x030\0\0\0\0\0\0"), of_events=of_events)
