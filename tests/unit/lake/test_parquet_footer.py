"""A file's end: what a segment says of itself is read, and no bytes lead anywhere else."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import SegmentUnreadable
from tailrace.lake.lake import Lake
from tailrace.lake.parquet import footer
from tailrace.lake.parquet.thrift import (
    BYTE,
    I64,
    LIST,
    MAP,
    STRUCT,
    Value,
    binary,
    i32,
    i64,
    listing,
    struct,
    varint,
)
from tailrace.lake.parquet.writer import ParquetWriter
from tailrace.lake.segment import FOOTER_KEY, Documents, Footer
from tests.unit.engine.changes import time, token
from tests.unit.event.documents import quick
from tests.unit.lake.pages import COLUMNS, METADATA, one, written

FOOTER = Footer(
    lake="a lake",
    scope="orders",
    segment=3,
    rows=3,
    first_ordinal=5,
    last_ordinal=7,
    token=token(7),
    cluster_time=time(7),
    cluster="rs0/1",
    fingerprint="f",
    epoch=2,
    documents=Documents.BSON,
    writer="w",
)
COLUMN = COLUMNS[0]
TABLE = pa.table({COLUMN.name: [1, None, 2]})


class Remembered:
    """A storage of one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[int | None] = []

    def read(self, name: str, last: int | None = None) -> bytes:
        assert name == "orders/seg-000000000003.parquet"
        self.reads.append(last)
        return self.data if last is None else self.data[-last:]

    def list(self, directory: str) -> Sequence[str]:
        raise NotImplementedError

    def put(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    def tidy(self, directory: str) -> None:
        raise NotImplementedError


def found(data: bytes) -> Footer:
    return Lake("lake", Remembered(data), FOOTER.lake).footer("orders", 3)


def segment(footer: Footer = FOOTER, groups: int = 1) -> bytes:
    """Three rows a row group."""
    return written_by_us({FOOTER_KEY: footer.to_json()}, groups)


def written_by_us(metadata: dict[bytes, bytes], groups: int = 1) -> bytes:
    writer = ParquetWriter([COLUMN], row_group_bytes=1 if groups > 1 else 2**26)
    for _ in range(groups):
        writer.write({COLUMN.name: [1, None, 2]})
    return b"".join(writer.close(metadata))


def written_by_arrow(**options: Any) -> bytes:
    stream = io.BytesIO()
    with pq.ParquetWriter(stream, TABLE.schema, **options) as writer:
        writer.write_table(TABLE)
        writer.add_key_value_metadata({FOOTER_KEY: FOOTER.to_json()})
    return stream.getvalue()


def ending(metadata: bytes) -> bytes:
    """A file with such metadata, of whatever kind."""
    return b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1"


def file_metadata(**fields: Value | None) -> bytes:
    """``FileMetaData``, with other fields than it should have."""
    usual: dict[str, Value | None] = {
        "f1": i32(1),
        "f2": listing(STRUCT, []),
        "f3": i64(3),
        "f4": listing(STRUCT, []),
        "f5": listing(STRUCT, [struct({1: binary(FOOTER_KEY), 2: binary(FOOTER.to_json())})]),
    }
    return struct({int(name[1:]): value for name, value in (usual | fields).items()})[1]


def test_our_own_end_is_read() -> None:
    data = written(COLUMNS)
    assert footer.needed(data[-8:]) < len(data)
    assert footer.read(data) == footer.FileEnd(0, METADATA)
    assert footer.read(data[-footer.needed(data) :]) == footer.FileEnd(0, METADATA)
    assert footer.read(one(COLUMN, [1, None], [3])).rows == 3
    assert found(segment()) == FOOTER


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"version": "1.0", "write_statistics": False},
        {"store_schema": False, "write_page_index": True, "data_page_version": "2.0"},
        {"sorting_columns": [pq.SortingColumn(0)], "store_decimal_as_integer": True},
    ],
)
def test_segments_of_before_are_read(options: dict[str, Any]) -> None:
    assert found(written_by_arrow(**options)) == FOOTER


def test_a_long_end_is_read_in_two_steps() -> None:
    long = replace(FOOTER, rows=2700)
    data = segment(long, groups=900)
    storage = Remembered(data)
    assert Lake("lake", storage, FOOTER.lake).footer("orders", 3) == long
    assert storage.reads == [65_536, footer.needed(data)]


def test_metadata_of_any_keys_and_values() -> None:
    pairs = {b"": b"", b"a": b"\xff" * 300, b"b": b""}
    assert footer.read(written_by_us(pairs)) == footer.FileEnd(3, pairs)


def test_a_field_that_a_later_version_may_have_is_passed_over() -> None:
    later = {
        "f6": (BYTE, b"\x07"),
        "f7": (7, bytes(8)),
        "f8": (MAP, b"\x02\x85" + b"\x01a\x02\x02bc\x04"),
        "f9": (MAP, b"\x00"),
        "f10": (13, bytes(16)),
        "f11": (1, b""),
        "f12": (LIST, b"\x31\x01\x02\x01"),
        "f13": struct({1: (2, b""), 3: listing(STRUCT, [struct({})] * 20)}),
        "f14": (4, b"\x80\x01"),
    }
    assert found(ending(file_metadata(**later))) == FOOTER


def test_a_field_far_from_the_one_before_is_passed_over() -> None:
    far = b"\x05" + varint(2 * 300) + b"\x07"
    assert found(ending(file_metadata()[:-1] + far + b"\0")) == FOOTER


@settings(quick, max_examples=100)
@given(st.data())
def test_a_torn_file(data: st.DataObject) -> None:
    whole = segment()
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(SegmentUnreadable, match=r"is torn, or no Parquet file \(.+\)\. Nothing"):
        found(torn)


@settings(quick, max_examples=200)
@given(st.data())
def test_a_damaged_file(data: st.DataObject) -> None:
    """Whatever is still believed is what was written, as long as its own text is intact."""
    whole = bytearray(data.draw(st.sampled_from([segment(), written_by_arrow()])))
    begin = whole.index(FOOTER.to_json())
    end = begin + len(FOOTER.to_json())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(whole) - 1).filter(lambda at: not begin <= at < end))
        whole[at] = data.draw(st.integers(0, 255))
    with suppress(SegmentUnreadable):
        assert found(bytes(whole)) == FOOTER


@settings(quick, max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_for_metadata(metadata: bytes) -> None:
    with pytest.raises(SegmentUnreadable):
        found(ending(metadata))


@settings(quick, max_examples=100)
@given(st.data())
def test_a_damaged_text(data: st.DataObject) -> None:
    text = bytearray(FOOTER.to_json())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SegmentUnreadable):
        assert isinstance(found(written_by_us({FOOTER_KEY: bytes(text)})), Footer)


MANY = 2**21

HOSTILE = {
    "no file": b"",
    "a magic number alone": b"PAR1",
    "no metadata": ending(b""),
    "an encrypted file": ending(file_metadata())[:-4] + b"PARE",
    "metadata longer than the file": b"PAR1" + (99).to_bytes(4, "little") + b"PAR1",
    "metadata of 4 GiB": b"PAR1" * 20_000 + b"\xff\xff\xff\xff" + b"PAR1",
    "no rows": ending(file_metadata(f3=None)),
    "rows of another type": ending(file_metadata(f3=binary(b"3"))),
    "no schema": ending(file_metadata(f2=None)),
    "no row groups": ending(file_metadata(f4=None)),
    "pairs of another type": ending(file_metadata(f5=listing(I64, [i64(1)]))),
    "a text of 4 GiB": ending(file_metadata(f6=(8, varint(2**32) + b"x"))),
    "a list of 4 Gi elements": ending(file_metadata(f6=(LIST, b"\xfc" + varint(2**32)))),
    "a map of 4 Gi entries": ending(file_metadata(f6=(MAP, varint(2**32) + b"\x55"))),
    "an endless number": ending(file_metadata(f6=(I64, b"\x80" * 100))),
    "a type that there is not": ending(file_metadata(f6=(14, b""))),
    "a list of a type that there is not": ending(file_metadata(f6=(LIST, b"\x20ab"))),
    "structs in structs": ending(file_metadata(f6=(STRUCT, b"\x1c" * 100_000))),
    "lists in lists": ending(file_metadata(f6=(LIST, b"\x19" * 100_000))),
    "maps in maps": ending(file_metadata(f6=(MAP, b"\x01\xbb" * 100_000))),
    "many structs that do not end": ending(file_metadata(f4=(LIST, b"\xfc" + varint(MANY)))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes(name: str) -> None:
    data = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(SegmentUnreadable, match="is torn, or no Parquet file") as refused:
            found(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(data) + 100_000
    assert "\n" not in str(refused.value)


def test_what_is_passed_over_takes_no_memory() -> None:
    count = 100_000
    data = ending(file_metadata(f4=(LIST, b"\xfc" + varint(count) + bytes(count))))
    tracemalloc.start()
    try:
        assert found(data) == FOOTER
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(data)
