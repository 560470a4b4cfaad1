"""Change events as lines of Extended JSON v2.

For the relaxed form, a block of events is decoded and encoded in C. If the decoded block, encoded
as BSON again, has the same bytes, decoding lost nothing. :mod:`tailrace.event.extended_json` writes
all other events, and the canonical form: JSON encoders in C do not distinguish integer types.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import bson
import orjson
from bson import Binary, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from tailrace.event.bson import encoded
from tailrace.event.extended_json import to_json

_BLOCK_EVENTS = 32
_BLOCK_BYTES = 65536
"""Limits of a block. Larger blocks are not faster, and take memory while they are decoded."""

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_APPEND_NEWLINE
)
_NOT_FINITE = re.compile(rb"[\xf0-\xff][\x7f\xff]").search
"""The sign, the exponent and the first bits of a double that is NaN or infinite."""


def json_lines(events: Iterable[bytes], *, canonical: bool) -> Iterator[bytes]:
    """Events as Extended JSON v2, one per line, several lines at once. Raises as ``to_json``."""
    lines = _walked if canonical else _relaxed
    block: list[bytes] = []
    size = 0
    for raw in events:
        block.append(raw)
        size += len(raw)
        if len(block) == _BLOCK_EVENTS or size >= _BLOCK_BYTES:
            yield lines(block)
            block, size = [], 0
    if block:
        yield lines(block)


def _walked(events: Sequence[bytes], *, canonical: bool = True) -> bytes:
    return b"".join([to_json(raw, canonical=canonical).encode() + b"\n" for raw in events])


def _relaxed(events: Sequence[bytes]) -> bytes:
    """Relaxed Extended JSON of all events at once; if that fails, of each half."""
    lines = _in_c(events)
    if lines is not None:
        return lines
    if len(events) == 1:
        return _walked(events, canonical=False)
    middle = len(events) // 2
    return _relaxed(events[:middle]) + _relaxed(events[middle:])


def _in_c(events: Sequence[bytes]) -> bytes | None:
    """Relaxed Extended JSON of the events; ``None`` if decoding would lose something."""
    try:
        decoded = bson.decode_all(b"".join(events), _CODEC)
        lines = [orjson.dumps(event, _wrapped, _OPTIONS) for event in decoded]
        if bson.encode({"": decoded}, codec_options=_CODEC) != _array(events):
            return None  # types that Python lacks, repeated keys, text that is not UTF-8
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    for event, line in zip(events, lines, strict=True):
        # orjson writes null for a double that is not finite. Searching the bytes first is fast.
        if (b"\x7f" in event or b"\xff" in event) and _NOT_FINITE(event) and b"null" in line:
            return None
    return b"".join(lines)


def _array(events: Sequence[bytes]) -> bytes:
    """A document that holds the events in an array with an empty name."""
    elements = chain.from_iterable(zip(_names(len(events)), events, strict=True))
    return encoded(b"\x04\0" + encoded(b"".join(elements)))


@lru_cache(256)
def _names(count: int) -> Sequence[bytes]:
    """Type and name of each element in an array of documents."""
    return [b"\x03%d\0" % number for number in range(count)]


def _wrapped(value: Any) -> Any:
    """Converts a value for which JSON has no type. Events with types missing here are walked."""
    if value.__class__ is ObjectId:  # by far the most
        return {"$oid": value.binary.hex()}
    try:
        return _WRAPPERS[value.__class__](value)
    except KeyError:
        raise TypeError(value.__class__) from None


def _date(value: datetime) -> Any:
    if value.year < 1970:
        milliseconds = round((value.replace(tzinfo=UTC)).timestamp() * 1000)
        return {"$date": {"$numberLong": str(milliseconds)}}
    return {"$date": value.isoformat("T", "milliseconds" if value.microsecond else "seconds") + "Z"}


def _binary(value: bytes) -> Any:
    subtype = value.subtype if isinstance(value, Binary) else 0
    text = b2a_base64(value, newline=False).decode("ascii")
    return {"$binary": {"base64": text, "subType": f"{subtype:02x}"}}


_WRAPPERS: dict[type, Callable[[Any], Any]] = {
    Int64: int,
    datetime: _date,
    Timestamp: lambda value: {"$timestamp": {"t": value.time, "i": value.inc}},
    Decimal128: lambda value: {"$numberDecimal": str(value)},
    Binary: _binary,
    bytes: _binary,
}
