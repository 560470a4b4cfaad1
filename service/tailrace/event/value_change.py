"""What becomes of a value that is hashed or masked: always a text."""

from collections.abc import Callable
from hashlib import sha256
from json.encoder import encode_basestring as quote

from tailrace.event.bson import (
    FIXED,
    INT32_TYPE,
    INT64_TYPE,
    STRING,
    encoded,
    string_at,
    string_value,
)
from tailrace.event.extended_json import CANONICAL, to_json

Change = Callable[[int, bytes], bytes]
"""Gets the type and the bytes of a value, and returns those of the text in its place."""
_BLOCK = 64
"""The bytes of a block of SHA-256."""
_HEXADECIMAL = string_value(bytes(2 * sha256().digest_size))[:4]
"""The length of a digest as a text."""


def hashed(key: bytes) -> Change:
    """Replaces a value by the HMAC-SHA-256, in hexadecimal, of its canonical Extended JSON."""
    # Python's hmac takes more than twice as long as the two digests that it makes (RFC 2104), of
    # which the first blocks are the same for all values.
    padded = (sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in padded)).copy for pad in (0x36, 0x5C))

    def change(kind: int, value: bytes) -> bytes:
        if kind == STRING:
            json = quote(value[4:-1].decode("utf-8", "replace"))
        elif kind in FIXED:
            json = CANONICAL[kind](value, 0, len(value), CANONICAL)
        else:
            json = to_json(encoded(b"%c\0%b" % (kind, value)), canonical=True)[4:-1]
        first, second = inner(), outer()
        first.update(json.encode())
        second.update(first.digest())
        return b"%b%b\0" % (_HEXADECIMAL, second.hexdigest().encode())

    return change


def masked(text: str) -> Change:
    """Replaces a value by this text."""
    masking = string_value(text.encode())
    return lambda kind, value: masking


def last_kept(count: int, text: str) -> Change:
    """Replaces all but the last ``count`` characters of a text or digits of an integer.

    A value with no more than these, and one of another type, is replaced as a whole.
    """

    masking = string_value(text.encode())

    def change(kind: int, value: bytes) -> bytes:
        if kind == STRING:
            plain = string_at(value, 0)
        elif kind in (INT32_TYPE, INT64_TYPE):
            plain = str(abs(int.from_bytes(value, "little", signed=True)))
        else:
            return masking
        return string_value((text + plain[-count:]).encode()) if len(plain) > count else masking

    return change
