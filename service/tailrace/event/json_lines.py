"""Change events as lines of Extended JSON v2: :mod:`tailrace.event.extended_json`, but quicker.

What surrounds the documents of an event is alike in all of them, and written as it is found by its
place. The documents of some events are decoded and encoded together in C, where nothing is lost by
that; to know, they are turned back into BSON, which must give the same bytes. All else is walked,
and so is everything for the canonical form, which tells integers apart that Python does not.
"""

from __future__ import annotations

import re
import struct
from binascii import b2a_base64, hexlify
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any

import bson
import orjson
from bson import Binary, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.timestamp import Timestamp

from tailrace.event.bson import EMPTY_DOCUMENT, INT32, INT64
from tailrace.event.extended_json import to_json
from tailrace.event.json_scalars import SCALARS

_BLOCK_EVENTS = 32
_BLOCK_BYTES = 65536
"""Of events that are encoded together. A call into C costs as much as a small document does; more
of them gain nothing, and are in memory decoded."""

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS

# The order of fields, and that these strings hold no zeros: see tailrace.event.layout. A token has
# type bits where a key alone does not tell the type of an _id (doubles, 64-bit integers).
_HEAD = re.compile(
    rb"(?:\x12txnNumber\0(.{8})(\x03lsid\0\x48\0\0\0.{68}))?"
    rb"\x03_id\0.{4}\x02_data\0.{4}([0-9A-Fa-f]*)\0(?:\x05_typeBits\0(.\0\0\0\0.{,64}?))?\0"
    rb"\x02operationType\0.{4}(\w*)\0\x11clusterTime\0(.{8})"
    rb"(\x05collectionUUID\0\x10\0\0\0.{17})?(?:\x09wallTime\0(.{8}))?(?:\x03(fullDocument)\0)?",
    re.DOTALL,
).match
_PLACE = re.compile(
    rb"(\x03ns\0.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0)"
    rb"(?:\x03documentKey\0\x16\0\0\0\x07_id\0(.{12})\0)?"
    rb"(?:\x03(documentKey|updateDescription)\0)?",
    re.DOTALL,
).match
_DOCUMENT = re.compile(rb"\x03(\w+)\0").match
_SMALL = re.compile(  # a session has 72 bytes, and comes with each event of its transactions
    rb"[\x01\x09\x11\x12]\w+\0.{8}|\x02\w+\0.{4}[^\0]*\0|\x05\w+\0\x10\0\0\0.{17}"
    rb"|\x07\w+\0.{12}|\x08\w+\0.|\x0a\w+\0|\x10\w+\0.{4}|\x03lsid\0\x48\0\0\0.{68}",
    re.DOTALL,
).match
_TIMESTAMP = Struct("<II").unpack
_LENGTH = Struct("<i").pack
_NOT_FINITE = re.compile(rb"[\xf0-\xff][\x7f\xff]").search
"""The sign, the exponent and the first bits of a double that is no number or has no end."""


def json_lines(events: Iterable[bytes], *, canonical: bool) -> Iterator[bytes]:
    """Events in Extended JSON v2, a line each with its end; some lines at a time.

    They say what :func:`tailrace.event.extended_json.to_json` does, which may raise its errors
    here, too; numbers may be spelt otherwise.
    """
    lines, count, size = _Lines(canonical), 0, 0
    for raw in events:
        lines.add(raw)
        count += 1
        size += len(raw)
        if count == _BLOCK_EVENTS or size >= _BLOCK_BYTES:
            yield lines.finish()
            lines, count, size = _Lines(canonical), 0, 0
    if count:
        yield lines.finish()


class _Lines:
    """Lines under way: ``documents`` are not encoded yet, and stand in ``parts`` at ``holes``."""

    __slots__ = ("_canonical", "_documents", "_holes", "_parts")

    def __init__(self, canonical: bool) -> None:
        self._canonical = canonical
        self._parts: list[bytes] = []
        self._holes: list[int] = []
        self._documents: list[bytes] = []

    def add(self, raw: bytes) -> None:
        parts, documents = len(self._parts), len(self._documents)
        try:
            known = not self._canonical and self._place(raw)
        except (ValueError, struct.error):
            known = False
        if not known:
            del self._parts[parts:], self._holes[documents:], self._documents[documents:]
            self._parts.append(to_json(raw, canonical=self._canonical).encode() + b"\n")

    def finish(self) -> bytes:
        if self._documents:
            for hole, text in zip(self._holes, _texts(self._documents), strict=True):
                self._parts[hole] = text
        return b"".join(self._parts)

    def _place(self, raw: bytes) -> bool:
        """Adds an event, element by element; some of it, where one is of a rare type.

        Raises ``ValueError`` or ``struct.error`` where one is not what it seems.
        """
        last = len(raw) - 1
        if last < EMPTY_DOCUMENT or INT32(raw, 0)[0] != len(raw):
            return False
        first, add = len(self._parts), self._parts.append
        at, document = self._begin(raw)
        begun = len(self._parts) > first
        while True:
            if document is not None:  # named, and what comes next
                length = INT32(raw, at)[0]
                if length < EMPTY_DOCUMENT:
                    return False
                add(b',"%b":' % document)
                self._holes.append(len(self._parts))
                add(b"")
                self._documents.append(raw[at : at + length])
                at += length
            if at >= last:
                break
            if place := _PLACE(raw, at):
                namespace, identity, document = place.groups()
                add(_element(namespace))
                if identity is not None:
                    add(b',"documentKey":{"_id":{"$oid":"%b"}}' % hexlify(identity))
                at = place.end()
            elif small := _SMALL(raw, at):
                add(_element(small[0]))
                document, at = None, small.end()
            elif field := _DOCUMENT(raw, at):
                document, at = field[1], field.end()
            else:
                return False
        if not begun:
            self._parts[first] = b"{" + self._parts[first][1:]
        add(b"}\n")
        return at == last and raw[last] == 0

    def _begin(self, raw: bytes) -> tuple[int, bytes | None]:
        """Adds what events begin with, and their lines, if this one does.

        Returns where the next element is, or the value of one whose name is returned, too.
        """
        head = _HEAD(raw, 4)
        if head is None:
            return 4, None
        number, session, token, bits, operation, time, uuid, wall_time, document = head.groups()
        increment, seconds = _TIMESTAMP(time)
        self._parts.append(
            b'{%b"_id":{"_data":"%b"%b},"operationType":"%b","clusterTime":{"$timestamp":{"t":%d,'
            b'"i":%d}}%b%b'
            % (
                b"" if number is None else _transaction(number, session),
                token,
                b"" if bits is None else _element(b"\x05_typeBits\0" + bits),
                operation,
                seconds,
                increment,
                b"" if uuid is None else _element(uuid),
                b"" if wall_time is None else _wall_time(wall_time),
            )
        )
        return head.end(), document


@lru_cache(1024)  # where writing costs anything, many events share their millisecond
def _wall_time(date: bytes) -> bytes:
    return b',"wallTime":%b' % SCALARS[0x09](date, 0, False)[0].encode()


def _transaction(number: bytes, session: bytes) -> bytes:
    return b'"txnNumber":%d%b,' % (INT64(number, 0)[0], _element(session))


@lru_cache(1024)  # namespaces, collections' UUIDs, sessions: each comes again and again
def _element(element: bytes) -> bytes:
    """An element behind others. Raises ``ValueError`` where it is not a whole one."""
    return b"," + to_json(_document(element), canonical=False)[1:-1].encode()


def _texts(documents: Sequence[bytes]) -> list[bytes]:
    """Relaxed Extended JSON of each: of all at once, or else of either half."""
    texts = _in_c(documents)
    if texts is not None:
        return texts
    if len(documents) == 1:
        return [to_json(documents[0], canonical=False).encode()]
    middle = len(documents) // 2
    return _texts(documents[:middle]) + _texts(documents[middle:])


def _in_c(documents: Sequence[bytes]) -> list[bytes] | None:
    """Relaxed Extended JSON of each, if decoding loses nothing of any."""
    try:
        decoded = bson.decode_all(b"".join(documents), _CODEC)
        texts = [orjson.dumps(document, _wrapped, _OPTIONS) for document in decoded]
        if bson.encode({"": decoded}, codec_options=_CODEC) != _array(documents):
            return None  # types that Python has no equal of, repeated keys, text that is no UTF-8
    except (bson.errors.BSONError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    for document, text in zip(documents, texts, strict=True):
        # orjson writes null for what is not finite. Most documents have neither byte, which is
        # told at a tenth of what the search takes.
        if (b"\x7f" in document or b"\xff" in document) and (
            _NOT_FINITE(document) and b"null" in text
        ):
            return None
    return texts


def _array(documents: Sequence[bytes]) -> bytes:
    """A document that holds them in an array without a name."""
    elements = b"".join(chain.from_iterable(zip(_names(len(documents)), documents, strict=True)))
    return _document(b"\x04\0" + _document(elements))


def _document(elements: bytes) -> bytes:
    return _LENGTH(len(elements) + EMPTY_DOCUMENT) + elements + b"\0"


@lru_cache(256)
def _names(count: int) -> Sequence[bytes]:
    """What stands before each element of an array of documents."""
    return [b"\x03%d\0" % number for number in range(count)]


def _wrapped(value: Any) -> Any:
    """What JSON has no type for. A type that is missing here is walked."""
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
