"""How fields of events are decoded."""

from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

from tailrace.event.bson import DOCUMENT, encoded, spans

# Dates beyond Python's years become DatetimeMS, UUIDs become Binary: nothing fails or is guessed.
# Text that is not UTF-8 gets replacement characters; `raw` has it exactly.
CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)


def decoded_field(buffer: bytes, start: int, name: bytes) -> Any:
    """A field of the document at ``start``, or ``None``.

    A document is decoded on its own: as a field, bson takes it for a DBRef if it looks so.
    """
    kind, begin, end = spans(buffer, start).get(name, (0, 0, 0))
    value = begin + len(name) + 2
    if kind == DOCUMENT:
        return bson.decode(buffer[value:end], CODEC)
    return bson.decode(encoded(buffer[begin:end]), CODEC).get(name.decode())
