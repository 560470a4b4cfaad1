"""Finding elements in raw BSON agrees with the codec, and broken bytes are only ever told."""

from __future__ import annotations

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
@given(documents, st.data())
def test_truncated_bytes_are_a_value_error(document: dict[str, Any], data: st.DataObject) -> None:
    raw = bson.encode(document)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(ValueError, match=r"malformed|truncated"):
        elements(raw[:cut], 0)


@quick
@given(documents, st.data())
def test_damaged_bytes_are_a_value_error_or_unnoticed(
    document: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(bson.encode(document))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = elements(bytes(raw), 0)
    except ValueError:
        return
    assert all(0 < at <= len(raw) for _, at in found.values())


@quick
@given(st.binary(max_size=64), st.integers(0, 80))
def test_noise_is_a_value_error_or_a_document(noise: bytes, start: int) -> None:
    try:
        elements(noise, start)
    except ValueError:
        return


def test_lengths_that_point_backwards_do_not_hang() -> None:
    binary = b"\x05a\0" + (-8).to_bytes(4, "little", signed=True) + b"\0"
    raw = (len(binary) + 5).to_bytes(4, "little") + binary + b"\0"
    with pytest.raises(ValueError, match="malformed"):
        elements(raw, 0)


def test_an_unknown_type_is_malformed() -> None:
    with pytest.raises(ValueError, match="malformed"):
        elements(b"\x09\0\0\0\x20a\0\0\0", 0)


def test_text_that_is_not_utf_8_is_shown_as_such() -> None:
    assert string_at(b"\x03\0\0\0\xffa\0", 0) == "\N{REPLACEMENT CHARACTER}a"
