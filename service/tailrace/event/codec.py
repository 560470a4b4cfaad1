"""How fields of events are decoded."""

from typing import Any

import bson
from bson import ObjectId, json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError

from tailrace.event.bson import DOCUMENT, INT32, INT32_TYPE, OBJECT_ID, STRING, encoded, spans

# Dates beyond Python's years become DatetimeMS, UUIDs become Binary: nothing fails or is guessed.
# Text that is not UTF-8 gets replacement characters; `raw` has it exactly.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)

CANONICAL_JSON, RELAXED_JSON = (
    options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    for options in (json_util.CANONICAL_JSON_OPTIONS, json_util.RELAXED_JSON_OPTIONS)
)
"""The same for Extended JSON."""
NOT_JSON = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, BSONError)
"""What the codecs raise for text that is not Extended JSON, and for values that BSON lacks."""

_OBJECT_ID, _NUMBER, _TEXT = (b"%c_id\0" % kind for kind in (OBJECT_ID, INT32_TYPE, STRING))


def decoded_field(buffer: bytes, start: int, name: bytes) -> Any:
    """A field of the document at ``start``, or ``None``.

    A document is decoded on its own: as a field, bson takes it for a DBRef if it looks so.
    """
    kind, begin, end = spans(buffer, start).get(name, (0, 0, 0))
    value = begin + len(name) + 2
    if kind == DOCUMENT:
        return bson.decode(buffer[value:end], CODEC)
    return bson.decode(encoded(buffer[begin:end]), CODEC).get(name.decode())


def decoded_key(buffer: bytes, begin: int, end: int) -> dict[str, Any]:
    """The document key between two offsets. The most frequent kinds are read without bson, which
    takes longer to begin than to read one."""
    head, size = buffer[begin + 4 : begin + 9], end - begin
    if buffer[end - 1] == 0:
        if head == _OBJECT_ID and size == 22:
            return {"_id": ObjectId(buffer[begin + 9 : end - 1])}
        if head == _NUMBER and size == 14:
            return {"_id": INT32(buffer, begin + 9)[0]}
        if head == _TEXT and 0 < INT32(buffer, begin + 9)[0] == size - 14 and buffer[end - 2] == 0:
            return {"_id": buffer[begin + 13 : end - 2].decode("utf-8", "replace")}
    return bson.decode(buffer[begin:end], CODEC)
