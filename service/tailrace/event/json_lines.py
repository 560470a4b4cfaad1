"""Many BSON documents as Extended JSON at once, and change events as lines of it.

For forms with a ``wrap``, a block of documents is decoded and encoded in C. If the decoded block,
encoded as BSON again, has the same bytes, decoding lost nothing.
:mod:`tailrace.event.extended_json` writes all other documents, and the canonical form: JSON
encoders in C do not distinguish integer types.
"""

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import bson
import orjson
from bson import Binary, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from tailrace.event import extended_json
from tailrace.event.bson import encoded
from tailrace.event.extended_json import Writers, decimal_text, written

_BLOCK_DOCUMENTS = 32
_BLOCK_BYTES = 65536
"""Limits of a block. Larger blocks are not faster, and take memory while they are decoded."""

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_NOT_FINITE = re.compile(rb"[\xf0-\xff][\x7f\xff]").search
"""The sign, the exponent and the first bits of a double that is NaN or infinite."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of Extended JSON: the writers of its values, and the encoder's ``wrap``, if any.

    It converts values for which JSON has no type, and raises ``TypeError`` for types that it does
    not know: documents with such values are walked.
    """

    writers: Writers
    wrap: Callable[[Any], Any] | None = None


def wrapping(wrappers: Mapping[type, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The ``wrap`` that converts ObjectIds, and values of these types."""

    def wrap(value: Any) -> Any:
        if value.__class__ is ObjectId:  # by far the most
            return {"$oid": value.binary.hex()}
        try:
            return wrappers[value.__class__](value)
        except KeyError:
            raise TypeError(value.__class__) from None

    return wrap


def json_texts(documents: Sequence[bytes], form: Form) -> list[bytes]:
    """Each BSON document as Extended JSON, without a line end. Raises as ``to_json``."""
    return list(chain.from_iterable(_blocks(documents, form)))


def json_lines(events: Iterable[bytes], *, canonical: bool) -> Iterator[bytes]:
    """Events as Extended JSON v2, one per line, several lines at once. Raises as ``to_json``."""
    for texts in _blocks(events, CANONICAL if canonical else RELAXED):
        texts.append(b"")
        yield b"\n".join(texts)


def _blocks(documents: Iterable[bytes], form: Form) -> Iterator[list[bytes]]:
    texts = _walked if form.wrap is None else _encoded
    block: list[bytes] = []
    size = 0
    for raw in documents:
        block.append(raw)
        size += len(raw)
        if len(block) == _BLOCK_DOCUMENTS or size >= _BLOCK_BYTES:
            yield texts(block, form)
            block, size = [], 0
    if block:
        yield texts(block, form)


def _walked(documents: Sequence[bytes], form: Form) -> list[bytes]:
    return [written(raw, form.writers).encode() for raw in documents]


def _encoded(documents: Sequence[bytes], form: Form) -> list[bytes]:
    """The JSON of all documents at once; if that fails, of each half."""
    texts = _in_c(documents, form)
    if texts is not None:
        return texts
    if len(documents) == 1:
        return _walked(documents, form)
    middle = len(documents) // 2
    return _encoded(documents[:middle], form) + _encoded(documents[middle:], form)


def _in_c(documents: Sequence[bytes], form: Form) -> list[bytes] | None:
    """The JSON of the documents; ``None`` if decoding would lose something."""
    try:
        joined = b"".join(documents)
        decoded = bson.decode_all(joined, _CODEC)
        texts = [orjson.dumps(document, form.wrap, _OPTIONS) for document in decoded]
        if bson.encode({"": decoded}, codec_options=_CODEC) != _array(documents):
            return None  # types that Python lacks, repeated keys, text that is not UTF-8
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    # orjson writes null for a double that is not finite. The search is slow, and comes last.
    if b"\x7f" in joined or b"\xff" in joined:
        for document, text in zip(documents, texts, strict=True):
            if b"null" in text and _NOT_FINITE(document):
                return None
    return texts


def _array(documents: Sequence[bytes]) -> bytes:
    """A document that holds the documents in an array with an empty name."""
    elements = chain.from_iterable(zip(_names(len(documents)), documents, strict=True))
    return encoded(b"\x04\0" + encoded(b"".join(elements)))


@lru_cache(256)
def _names(count: int) -> Sequence[bytes]:
    """Type and name of each element in an array of documents."""
    return [b"\x03%d\0" % number for number in range(count)]


def _date(value: datetime) -> Any:
    if value.year < 1970:
        milliseconds = round((value.replace(tzinfo=UTC)).timestamp() * 1000)
        return {"$date": {"$numberLong": str(milliseconds)}}
    return {"$date": value.isoformat("T", "milliseconds" if value.microsecond else "seconds") + "Z"}


def timestamp_object(value: Timestamp) -> Any:
    """As both versions of Extended JSON have it."""
    return {"$timestamp": {"t": value.time, "i": value.inc}}


def decimal_object(value: Decimal128) -> Any:
    """As both versions of Extended JSON have it."""
    return {"$numberDecimal": decimal_text(value.bid)}


def _binary(value: bytes) -> Any:
    subtype = value.subtype if isinstance(value, Binary) else 0
    text = b2a_base64(value, newline=False).decode("ascii")
    return {"$binary": {"base64": text, "subType": f"{subtype:02x}"}}


RELAXED = Form(
    extended_json.RELAXED,
    wrapping(
        {
            Int64: int,
            datetime: _date,
            Timestamp: timestamp_object,
            Decimal128: decimal_object,
            Binary: _binary,
            bytes: _binary,
        }
    ),
)
CANONICAL = Form(extended_json.CANONICAL)
