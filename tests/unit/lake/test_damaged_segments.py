"""What becomes of a segment that a disk or a copy has damaged: nobody reads wrong values."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailrace.errors import SegmentUnreadable
from tailrace.handlers.parquet.landing import Landing
from tailrace.lake.lake import Lake
from tailrace.lake.parquet.compression import Compression
from tailrace.lake.segment import COLUMNS, FOOTER_KEY, Documents, Footer
from tests.damage import OWNER, damages, landed
from tests.lake import plain


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return landed(tmp_path_factory.mktemp("damage") / "lake")


def values(data: bytes) -> list[dict[str, Any]]:
    table = pq.ParquetFile(io.BytesIO(data)).read()
    return plain(table.select(list(COLUMNS)))


def test_other_readers_read_right_values_or_fail(segment: Path) -> None:
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


def test_a_reader_of_another_make_sees_a_damaged_page(segment: Path, tmp_path: Path) -> None:
    data, path = segment.read_bytes(), tmp_path / "damaged.parquet"
    for place, damaged in damages(data, 40, seed=2):
        if place < len(data) // 2:  # the pages
            path.write_bytes(damaged)
            with pytest.raises(duckdb.Error):
                duckdb.sql(f"SELECT * FROM '{path}'").fetchall()


def test_the_daemon_goes_on_at_the_right_place_or_names_the_file(segment: Path) -> None:
    """The newest segment is the position: a wrong byte of it must not become another one."""
    lake = Lake.open(str(segment.parent.parent))
    data = segment.read_bytes()
    right, found = lake.footer("orders", 1), 0
    try:
        for place, damaged in damages(data, 400, seed=3):
            segment.write_bytes(damaged)
            try:
                assert lake.footer("orders", 1) == right, f"byte {place}"
            except SegmentUnreadable as error:
                assert str(segment) in str(error)  # noqa: PT017
                found += 1
    finally:
        segment.write_bytes(data)
    assert found > 50


def test_a_token_with_one_wrong_digit_starts_no_daemon(tmp_path: Path) -> None:
    path = landed(tmp_path / "lake")
    data = path.read_bytes()
    token = json.loads(pq.read_metadata(path).metadata[FOOTER_KEY])["token"]
    at = data.rindex(json.dumps(token)[1:-1].encode()) + 20
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    lake = Lake.open(str(tmp_path / "lake"))
    landing = Landing(lake, "orders", Documents.BSON, Compression())
    with pytest.raises(SegmentUnreadable, match=rf"{path}: .*checksum.*Nothing was changed"):
        landing.begin(OWNER)


def test_a_footer_of_before_has_no_checksum_and_is_read(segment: Path) -> None:
    text = pq.read_metadata(segment).metadata[FOOTER_KEY]
    footer = Footer.from_json(text, where="here")
    assert footer.to_json() == text
    record = json.loads(text)
    del record["checksum"]
    assert Footer.from_json(json.dumps(record).encode(), where="here") == footer
