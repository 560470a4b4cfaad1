"""The filter of a snapshot. The progress stores it as canonical Extended JSON."""

import hashlib
from collections.abc import Mapping
from typing import Any

import bson
from bson import json_util

from tailrace.event.codec import CANONICAL_JSON, NOT_JSON, RELAXED_JSON


def text_of(matching: Mapping[str, Any] | None) -> str:
    """A filter as text; empty for no filter or an empty one."""
    if not matching:
        return ""
    return json_util.dumps(matching, json_options=CANONICAL_JSON)


def filter_of(text: str) -> Mapping[str, Any] | None:
    """The filter that :func:`text_of` wrote."""
    if not text:
        return None
    found: Mapping[str, Any] = json_util.loads(text, json_options=CANONICAL_JSON)
    return found


def canonical(text: str) -> str:
    """An operator's text as :func:`text_of` writes it.

    Raises ``ValueError`` if it is not a document, or holds what no command can carry: a number
    beyond 64 bits, half of a surrogate pair, a NUL in a name.
    """
    if not text.strip():
        return ""
    try:
        document = json_util.loads(text, json_options=RELAXED_JSON)
        stored = text_of(document)  # from Python 3.12 on, more nesting can be read than written
    except NOT_JSON as error:
        raise ValueError(f"the filter is not Extended JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValueError('a filter is a document, as in {"status": "open"}')
    try:
        bson.encode(document)
    except NOT_JSON as error:
        raise ValueError(f"the filter holds a value that BSON cannot store: {error}") from error
    return stored


def fingerprint(text: str) -> str:
    """Sixteen hexadecimal characters that identify the filter; empty for no filter."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""
