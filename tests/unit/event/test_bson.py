"""Finding elements in raw BSON agrees with the codec, and broken bytes are reported."""

from contextlib import suppress
from typing import Any

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from tailrace.event.bson import (
    ARRAY,
    DOCUMENT,
    STRING,
    TIMESTAMP,
    UINT64,
    document_at,
    elements,
    encoded,
    string_at,
)
from tests.unit.event.documents import documents, quick

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


@quick
@given(documents, st.binary(max_size=5), st.binary(max_size=5))
def test_it_finds_what_the_codec_decodes(
    document: dict[str, Any], before: bytes, behind: bytes
) -> None:
    raw = bson.encode(document)
    buffer = before + raw + behind
    found = elements(buffer, len(before))
    assert [name.decode() for name in found] == list(bson.decode(raw))
    for name, (kind, at) in found.items():
        expected = bson.decode(raw, RAW)[name.decode()]
        if kind == STRING:
            assert string_at(buffer, at) == expected
        elif kind == TIMESTAMP:
            assert UINT64(buffer, at)[0] == (expected.time << 32) + expected.inc
        elif kind == DOCUMENT:
            assert document_at(buffer, at) == bson.encode(expected)
        elif kind == ARRAY:
            members = elements(buffer, at)
            assert [int(index) for index in members] == list(range(len(expected)))


@quick
@given(documents, st.integers(0), st.binary(max_size=9))
def test_damaged_bytes_are_a_value_error_or_unnoticed(
    document: dict[str, Any], place: int, noise: bytes
) -> None:
    raw = bson.encode(document)
    place %= len(raw)
    with suppress(ValueError):
        found = elements(raw[:place] + noise + raw[place + len(noise) :], 0)
        assert all(0 < at <= len(raw) + len(noise) for _, at in found.values())
    with pytest.raises(ValueError, match=r"malformed"):
        elements(raw[:place], 0)


@pytest.mark.parametrize(
    "element", [b"\x05a\0\xf8\xff\xff\xff\0", b"\x20a\0"], ids=["length below 0", "no such type"]
)
def test_an_element_that_is_none_is_malformed(element: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        elements(encoded(element), 0)


def test_text_that_is_not_utf_8_is_shown_as_such() -> None:
    assert string_at(b"\x03\0\0\0\xffa\0", 0) == "\N{REPLACEMENT CHARACTER}a"
