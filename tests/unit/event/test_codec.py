"""Keys that are read without bson are what bson reads."""

from typing import Any

import bson
from bson.errors import InvalidBSON
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event.codec import CODEC, decoded_key
from tests.unit.event.documents import quick

ids = st.one_of(
    st.builds(bson.ObjectId, st.binary(min_size=12, max_size=12)),
    st.integers(-(2**31), 2**31 - 1),
    st.text(max_size=9),
    st.floats(),
    st.binary(max_size=9),
)
keys = st.one_of(
    st.builds(lambda value: {"_id": value}, ids),
    st.builds(lambda value, more: {"_id": value, "region": more}, ids, ids),
    st.builds(lambda value: {"ad": value}, ids),
)


@quick
@given(keys, st.data())
def test_a_key_is_read_as_bson_reads_it_also_if_a_byte_of_it_is_wrong(
    key: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(bson.encode(key))
    assert _read(raw) == repr(bson.decode(raw, CODEC))
    at = data.draw(st.integers(4, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        as_bson = repr(bson.decode(raw, CODEC))
    except InvalidBSON as error:
        as_bson = repr(error)
    assert _read(raw) == as_bson


def _read(raw: bytes) -> str:
    try:
        return repr(decoded_key(b"?" + raw + b"?", 1, len(raw) + 1))
    except InvalidBSON as error:
        return repr(error)
