"""The bytes of a data page, before they are compressed (Encodings.md).

All of it is laid out for C to do the work: at most one pass over the values runs in Python.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import compress
from typing import TypeVar

from tailrace.lake.parquet.thrift import varint

_LENGTH = struct.Struct("<I").pack
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")

_ALL, _NONE = b"\x01", b"\x00"

V = TypeVar("V")


def definition_levels(values: Sequence[V | None]) -> tuple[bytes, Sequence[V]]:
    """The levels of an optional column as they stand in a page, and the values that are no null.

    "RLE / Bit-Packing Hybrid" with a width of one bit, behind its length in four bytes: one run
    where all levels are the same, and else one bit each, the lowest first.
    """
    nulls = 0 if all(values) else values.count(None)  # the former is quicker, and most often so
    present: Sequence[V]
    if not nulls or nulls == len(values):
        present = [] if nulls else values  # type: ignore[assignment]
        levels = varint(len(values) << 1) + (_NONE if nulls else _ALL)
    else:
        mask = bytes([value is not None for value in values])
        present = list(compress(values, mask))  # type: ignore[arg-type]
        groups = (len(values) + 7) // 8
        bits = int(mask.translate(_DIGITS)[::-1], 2)
        levels = varint(groups << 1 | 1) + bits.to_bytes(groups, "little")
    return _LENGTH(len(levels)) + levels, present


def plain_numbers(head: bytes, numbers: Sequence[int]) -> bytes:
    """``head``, and behind it the numbers: eight bytes each ("PLAIN").

    Raises ``struct.error`` for one of more than 64 bits.
    """
    return head + struct.pack(f"<{len(numbers)}q", *numbers)


def plain_texts(head: bytes, texts: Sequence[bytes]) -> bytes:
    """``head``, and behind it the texts: each behind its length in four bytes ("PLAIN")."""
    lengths = list(map(len, texts))
    if lengths and lengths.count(lengths[0]) == len(lengths):
        return _LENGTH(lengths[0]).join([head, *texts])
    parts = [head] * (2 * len(texts) + 1)
    parts[1::2] = map(_LENGTH, lengths)
    parts[2::2] = texts
    return b"".join(parts)


def indices(head: bytes, places: Sequence[int], entries: int) -> bytes:
    """``head``, and behind it the values' places in a dictionary of so many entries.

    "RLE / Bit-Packing Hybrid" behind its width ("RLE_DICTIONARY"): widths of whole bytes, which
    packing leaves as they are. Runs of bits are of eight values each; those that fill the last one
    up are not read.
    """
    size, code = _index(entries - 1)
    groups = (len(places) + 7) // 8
    filling = bytes(size * (8 * groups - len(places)))
    packed = bytes(places) if size == 1 else struct.pack(f"<{len(places)}{code}", *places)
    return b"%b%c%b%b%b" % (head, 8 * size, varint(groups << 1 | 1), packed, filling)


def repeated_index(head: bytes, place: int, count: int) -> bytes:
    """As :func:`indices`, where all values have the same place: one run."""
    size, _ = _index(place)
    return b"%b%c%b%b" % (head, 8 * size, varint(count << 1), place.to_bytes(size, "little"))


def _index(greatest: int) -> tuple[int, str]:
    """Bytes of each place where this is the greatest, and what ``struct`` calls them."""
    return (1, "B") if greatest < 1 << 8 else (2, "H") if greatest < 1 << 16 else (4, "I")
