"""Signatures of requests as in Standard Webhooks 1.0.0, symmetric (``v1``).

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import quote

PREFIX = "whsec_"

# CloudEvents' HTTP binding, 3.1.3.2: a space, '"', '%' and all that is not ASCII are encoded.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_LONGEST_ID = 500
"""Servers limit the size of a header, and an id may hold an ``_id`` of any size."""


def signing_key(secret: str) -> bytes:
    """The key in a secret: ``whsec_`` (may be missing) and base64. Raises ``ValueError``."""
    text = secret.removeprefix(PREFIX)
    try:
        key = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(
            f"must be a secret of Standard Webhooks, {PREFIX} and base64, as in "
            f"echo {PREFIX}$(openssl rand -base64 32)"
        )
    return key


def signatures(keys: Sequence[bytes], identity: str, timestamp: int, body: bytes) -> str:
    """The header ``webhook-signature``: a signature by each key."""
    signed = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    each = (b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys)
    return " ".join(f"v1,{text}" for text in each)


def webhook_id(event_id: str) -> str:
    """The header ``webhook-id``: the event's id itself if it is a resume token.

    The id of a row holds the ``_id`` of a document: it is percent-encoded, with its dots, because
    the signed content ends the id with one. The hash of a long one stands for it.
    """
    if event_id.isalnum() and event_id.isascii():
        return event_id
    text = header_value(event_id).replace(".", "%2E")
    return text if len(text) <= _LONGEST_ID else f"sha256-{sha256(text.encode()).hexdigest()}"


def batch_id(ids: Sequence[bytes]) -> str:
    """An id made of those of the events, as BSON."""
    return f"batch-{sha256(b''.join(ids)).hexdigest()}"


def header_value(text: str) -> str:
    """The text in a header, percent-encoded as CloudEvents' HTTP binding wants it."""
    return quote(text, safe=_PLAIN)
