"""What happens to a segment damaged by a disk or a copy: an error that names it."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.errors import SegmentUnreadable
from tailrace.lake.segment import COLUMNS, FOOTER_KEY, Footer
from tailrace.lake.segment_metadata import read_footer
from tailrace.lake.writable_lake import WritableLake
from tests.damage import damages, landed, metadata_begin
from tests.lake import plain
from tests.scratch import MakeDirectory


@pytest.fixture(scope="module")
def segment(session_directory: MakeDirectory) -> Path:
    return landed(session_directory("damage") / "lake")


def values(data: bytes) -> list[dict[str, Any]]:
    table = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).read()
    return plain(table.select(list(COLUMNS)))


def footer(data: bytes, lake: str) -> Footer:
    return read_footer(
        lambda last: data[-last:], where="the file", lake=lake, scope="orders", number=1
    )


def test_a_reader_that_verifies_checksums_reads_right_values_or_fails(segment: Path) -> None:
    data = segment.read_bytes()
    right, found = values(data), 0
    for place, damaged in damages(data, 400):
        try:
            read = values(damaged)
        except (pa.ArrowException, OSError, ValueError, KeyError):
            found += 1
        else:
            assert read == right, f"byte {place}"
    assert found > 300


def test_no_wrong_byte_of_the_metadata_is_missed(segment: Path) -> None:
    """The newest segment is the position, which one wrong byte must not change.

    The word ``checksum`` itself may change, because there are segments without a checksum.
    """
    data = segment.read_bytes()
    lake, begin = WritableLake.open(str(segment.parent.parent)), metadata_begin(data)
    right = lake.footer("orders", 1)
    word = data.index(b"checksum", begin)
    for place in range(begin, len(data)):
        damaged = b"%b%c%b" % (data[:place], data[place] ^ 1, data[place + 1 :])
        if word <= place < word + len("checksum"):
            assert footer(damaged, lake.id) == right
        else:
            with pytest.raises(SegmentUnreadable, match="the file: "):
                footer(damaged, lake.id)


@pytest.mark.parametrize("checksum", ["", ',"checksum":"00000001"'])
def test_a_footer_of_another_writer_may_lack_a_checksum(tmp_path: Path, checksum: str) -> None:
    path = landed(tmp_path / "lake")
    lake = WritableLake.open(str(tmp_path / "lake"))
    right = lake.footer("orders", 1)
    text = pq.read_metadata(path).metadata[FOOTER_KEY]
    text = text[: text.rindex(b',"checksum":"')] + checksum.encode() + b"}"
    rewritten(path, text)
    if checksum:
        with pytest.raises(SegmentUnreadable, match="checksum"):
            lake.footer("orders", 1)
    else:
        assert lake.footer("orders", 1) == right == Footer.from_json(text, where="here")


def rewritten(path: Path, footer: bytes) -> None:
    """The segment with another footer, as another writer would write it."""
    table = pq.ParquetFile(path).read()
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER_KEY: footer})


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (b"", "does not end as a Parquet file"),
        (b"PAR1", "does not end as a Parquet file"),
        (b"\x10\0\0\0PAR1", "its metadata has 24 bytes, and the file 8"),
        (b"\xff\xff\xff\xffPAR1", "at most"),
        (b"nonsense\x08\0\0\0PAR1", "Couldn't deserialize thrift"),
    ],
)
def test_what_is_no_parquet_file_is_refused(end: bytes, said: str) -> None:
    with pytest.raises(SegmentUnreadable, match=f"the file: is damaged, .*{said}") as refused:
        footer(end, "lake")
    assert "\n" not in str(refused.value)
