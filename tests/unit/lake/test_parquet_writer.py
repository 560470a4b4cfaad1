"""Files: what was written comes back from readers of other makers, and says what it has."""

from __future__ import annotations

import io
import random
import re
import struct
import tracemalloc
from typing import Any

import duckdb
import polars
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tailrace.lake.parquet.column import Column, ColumnKind, Values
from tailrace.lake.parquet.compression import Compression
from tailrace.lake.parquet.writer import ParquetWriter
from tests.unit.event.documents import quick
from tests.unit.lake.pages import (
    COLUMNS,
    METADATA,
    Page,
    file,
    one,
    read,
    schema,
    some_pages,
    together,
    written,
)

NUMBER = Column("number", ColumnKind.INT64, required=True, statistics=True)
WORD = Column("word", ColumnKind.STRING, dictionary=True, statistics=True)
BYTES = Column("bytes", ColumnKind.BINARY)

numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9)
times = st.integers(-(2**52), 2**52)
words = st.sampled_from([b"", b"insert", b"update", b"\xc3\xa9"])
blobs = words | st.binary(max_size=40) | st.integers(0, 9).map(lambda n: bytes([n]) * 70_000)
texts = words | st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(str.encode)

VALUES: dict[ColumnKind, st.SearchStrategy[Any]] = {
    ColumnKind.INT64: numbers,
    ColumnKind.MILLISECONDS: times,
    ColumnKind.BINARY: blobs,
    ColumnKind.STRING: texts,
}


@st.composite
def pages(draw: st.DrawFn) -> Page:
    """One page of every column: nulls here and there, everywhere or nowhere; runs; new values."""
    rows = draw(st.integers(1, 40))
    page: dict[str, Any] = {}
    for column in COLUMNS:
        value = VALUES[column.kind]
        if not column.required and draw(st.booleans()):
            value = draw(st.sampled_from([st.none(), value | st.none()]))
        if draw(st.booleans()):
            page[column.name] = [draw(value)] * rows
        else:
            page[column.name] = draw(st.lists(value, min_size=rows, max_size=rows))
    return page


@quick
@given(st.lists(pages(), min_size=1, max_size=3), st.sampled_from([1, 10_000, 2**26]))
def test_all_values_come_back(some: list[Page], row_group_bytes: int) -> None:
    data = written(COLUMNS, *some, row_group_bytes=row_group_bytes)
    assert read(data) == together(*some)


def test_polars_reads_the_same() -> None:
    some = some_pages()
    data = written(COLUMNS, *some, row_group_bytes=100_000)
    values = together(*some)
    assert file(data).num_row_groups > 2
    assert read(data) == values
    frame = polars.read_parquet(io.BytesIO(data))
    for column in COLUMNS:
        expected = values[column.name]
        series = frame[column.name]
        if column.kind is ColumnKind.MILLISECONDS:
            assert series.dtype == polars.Datetime("ms", "UTC")
            series = series.cast(polars.Int64)
        if column.kind is ColumnKind.STRING:
            expected = [None if text is None else text.decode() for text in expected]
        assert series.to_list() == expected


def test_duckdb_reads_the_same(tmp_path: Any) -> None:
    some = some_pages()
    values = together(*some)
    path = tmp_path / "file.parquet"
    path.write_bytes(written(COLUMNS, *some, row_group_bytes=100_000))
    for column in COLUMNS:
        name = column.name
        if column.kind is ColumnKind.MILLISECONDS:
            name = f"epoch_ms({name})"
        if column.kind is ColumnKind.STRING:
            name = f"encode({name})"
        rows = duckdb.sql(f"SELECT {name} FROM '{path}'").fetchall()
        assert [value for (value,) in rows] == values[column.name]
    bound = "int64_true_true > 4990 AND string_true_true >= 'w4990'"
    (found,) = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {bound}").fetchall()
    texts, counts = values["string_true_true"], values["int64_true_true"]
    both = zip(counts, texts, strict=True)
    assert found == (sum(n > 4990 and text >= b"w4990" for n, text in both),)


def test_a_reader_finds_names_types_and_metadata() -> None:
    found = file(written(COLUMNS, *some_pages()))
    assert found.schema_arrow.remove_metadata() == schema(COLUMNS)
    assert found.metadata.metadata == METADATA
    # VersionParser.FORMAT of parquet-java: who is not understood has no statistics there.
    who = r"(.*?)\s+version\s*(?:([^(]*?)\s*(?:\(\s*build\s*([^)]*?)\s*\))?)?"
    assert re.fullmatch(who, found.metadata.created_by)


def test_a_file_without_rows() -> None:
    writer = ParquetWriter(COLUMNS)
    writer.write({column.name: [] for column in COLUMNS})
    data = b"".join(writer.close({}))
    assert file(data).schema_arrow == schema(COLUMNS)
    assert (file(data).metadata.num_rows, file(data).num_row_groups) == (0, 0)
    assert read(data) == {column.name: [] for column in COLUMNS}
    assert polars.read_parquet(io.BytesIO(data)).shape == (0, len(COLUMNS))


def test_no_reader_minds_a_file_without_rows(tmp_path: Any) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(written(COLUMNS))
    assert duckdb.sql(f"SELECT * FROM '{path}'").fetchall() == []


# --- statistics ----------------------------------------------------------------------------


def statistics(data: bytes, group: int = 0) -> tuple[Any, Any, int]:
    found = file(data).metadata.row_group(group).column(0).statistics
    assert found.has_min_max == (found.min_raw is not None)
    return found.min_raw, found.max_raw, found.null_count


@pytest.mark.parametrize("dictionary", [True, False])
def test_statistics_of_each_row_group(dictionary: bool) -> None:
    column = Column("n", ColumnKind.INT64, dictionary=dictionary, statistics=True)
    data = one(column, [5, None, -7], [2**63 - 1, -(2**63)], row_group_bytes=1)
    assert statistics(data) == (-7, 5, 1)
    assert statistics(data, 1) == (-(2**63), 2**63 - 1, 0)


@pytest.mark.parametrize("dictionary", [True, False])
def test_texts_are_compared_by_their_bytes(dictionary: bool) -> None:
    column = Column("s", ColumnKind.STRING, dictionary=dictionary, statistics=True)
    data = one(column, [b"b", None], [b"\xc3\xa9", b""], [None, None])
    found = file(data).metadata.row_group(0).column(0).statistics
    assert (found.min, found.max, found.null_count) == ("", "é", 3)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("place", range(3))
def test_a_text_too_long_to_be_a_bound_leaves_both_out(dictionary: bool, place: int) -> None:
    column = Column("s", ColumnKind.STRING, dictionary=dictionary, statistics=True)
    some: list[Values] = [[b"a", None], [b"b"], [b"c"]]
    some[place] = [b"x" * 257]
    nulls = 0 if place == 0 else 1
    assert statistics(one(column, *some)) == (None, None, nulls)


def test_nulls_alone_have_no_bounds() -> None:
    assert statistics(one(WORD, [None], [None, None])) == (None, None, 3)


def test_no_statistics_where_none_are_wanted() -> None:
    assert file(one(BYTES, [b"x"])).metadata.row_group(0).column(0).statistics is None


# --- dictionaries --------------------------------------------------------------------------


@pytest.mark.parametrize("page", [7, 1000])
@pytest.mark.parametrize("values", [1, 256, 257, 65_536, 66_500])
def test_a_dictionary_of_any_size(values: int, page: int) -> None:
    column = Column("n", ColumnKind.INT64, required=True, dictionary=True, statistics=True)
    every = [*range(values), *range(min(values, 3000))]
    if page == 7:
        every = every[:300] + every[-300:]
    parts = [every[at : at + page] for at in range(0, len(every), page)]
    assert read(one(column, *parts))["n"] == every


def test_one_page_of_more_values_than_a_dictionary_takes() -> None:
    column = Column("n", ColumnKind.INT64, required=True, dictionary=True)
    every = list(range(70_000))
    data = one(column, every, every[::-1], [3] * 10)
    assert read(data)["n"] == every + every[::-1] + [3] * 10
    assert "PLAIN" in file(data).metadata.row_group(0).column(0).encodings


def test_a_dictionary_of_long_texts_is_given_up() -> None:
    every = [b"%d" % n * 10_000 for n in range(100, 140)]
    parts = [every[:35], every[35:], [*every, None], every]
    data = one(WORD, *parts, parts[0])
    assert read(data)["word"] == [value for part in [*parts, parts[0]] for value in part]
    assert len(data) < 20_000


def test_repeated_values_take_no_room() -> None:
    words = [[b"shop"] * 1000, [None] * 1000, [b"shop", None] * 500]
    assert len(one(WORD, *(words * 10))) < 2500
    chunk = file(one(WORD, *words)).metadata.row_group(0).column(0)
    assert chunk.has_dictionary_page


def test_nulls_alone_need_no_dictionary() -> None:
    chunk = file(one(WORD, [None])).metadata.row_group(0).column(0)
    assert not chunk.has_dictionary_page
    assert read(one(WORD, [None]))["word"] == [None]


# --- the file ------------------------------------------------------------------------------


def test_row_groups_end_where_they_have_enough() -> None:
    """And have all pages of a column in one place, so that a reader reads only that."""
    blobs = [random.Random(n).randbytes(1000) for n in range(4)]
    pages = [{"number": [n], "bytes": [blob]} for n, blob in enumerate(blobs)]
    data = written([NUMBER, BYTES], *pages, row_group_bytes=2000)
    metadata = file(data).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [2, 2]
    at = 4
    for group in groups:
        assert group.total_byte_size >= 2000
        for chunk in (group.column(0), group.column(1)):
            assert chunk.data_page_offset == at
            at += chunk.total_compressed_size


def test_how_much_there_is_so_far() -> None:
    writer = ParquetWriter([NUMBER, BYTES], row_group_bytes=3000)
    assert (writer.rows, writer.size) == (0, 4)
    for n in range(5):
        before = writer.size
        writer.write({"number": [n], "bytes": [random.Random(n).randbytes(1000)]})
        assert writer.rows == n + 1
        assert 1000 < writer.size - before < 1200
    size = writer.size
    assert size < sum(map(len, writer.close(METADATA))) < size + 1000


def test_writers_may_share_a_compression() -> None:
    compression = Compression()
    one, other = (ParquetWriter([NUMBER], compression=compression) for _ in range(2))
    one.write({"number": range(10)})
    other.write({"number": range(20)})
    one.write({"number": range(10)})
    assert read(b"".join(one.close({})))["number"] == [*range(10), *range(10)]
    assert read(b"".join(other.close({})))["number"] == [*range(20)]


def test_every_frame_says_how_large_it_is() -> None:
    """Readers give zstd memory by that."""
    data = one(BYTES, [b"a" * 5000], [None])
    frames = [match.start() for match in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), data)]
    sizes = [zstandard.get_frame_parameters(data[at:]).content_size for at in frames]
    assert sizes == [5000 + 4 + 6, 6]


def test_only_what_is_compressed_is_kept() -> None:
    words = [b"%05d" % n * 200 for n in range(1000)]
    writer = ParquetWriter([Column("text", ColumnKind.BINARY, required=True)])
    writer.write({"text": words})
    tracemalloc.start()
    try:
        for _ in range(20):
            writer.write({"text": list(words)})
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < writer.size + 20_000
    assert peak < kept + 3_000_000


@pytest.mark.parametrize(
    "page",
    [
        {"number": [1]},
        {"number": [1], "word": [b"a", b"b"]},
        {"number": [1], "other": [b"a"]},
        {"number": [1], "word": [b"a"], "other": [b"a"]},
        {},
    ],
)
def test_pages_that_are_not_of_one_size_are_refused(page: Page) -> None:
    with pytest.raises(ValueError, match="not every column has values, or not all"):
        ParquetWriter([NUMBER, WORD]).write(page)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ColumnKind.INT64, b"1"),
        (ColumnKind.INT64, 2**63),
        (ColumnKind.INT64, 1.5),
        (ColumnKind.STRING, "text"),
        (ColumnKind.STRING, 7),
    ],
)
def test_values_of_another_kind_are_refused(
    kind: ColumnKind, value: Any, required: bool, dictionary: bool
) -> None:
    column = Column("a", kind, required, dictionary)
    with pytest.raises((TypeError, struct.error)):
        one(column, [value, value, value])


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("kind", ColumnKind)
@pytest.mark.parametrize("page", [[None], [None, None]])
def test_a_null_where_none_may_be_is_refused(
    kind: ColumnKind, dictionary: bool, page: list[None]
) -> None:
    writer = ParquetWriter([Column("a", kind, required=True, dictionary=dictionary)])
    with pytest.raises((TypeError, struct.error)):
        writer.write({"a": page})


def test_a_page_beyond_what_the_format_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.lake.parquet.chunk._LARGEST_PAGE", 100)
    with pytest.raises(ValueError, match="a page of 104 bytes of column 'text'"):
        ParquetWriter([Column("text", ColumnKind.BINARY, required=True)]).write(
            {"text": [b"x" * 100]}
        )
