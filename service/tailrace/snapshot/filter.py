"""The filter of a snapshot. The progress stores it as canonical Extended JSON."""

import hashlib
from collections.abc import Mapping
from typing import Any

from bson import json_util
from bson.errors import BSONError

_NO_JSON = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, BSONError)
"""What the codec raises for text that is not Extended JSON."""


def text_of(matching: Mapping[str, Any] | None) -> str:
    """A filter as text; empty for no filter or an empty one."""
    if not matching:
        return ""
    return json_util.dumps(matching, json_options=json_util.CANONICAL_JSON_OPTIONS)


def filter_of(text: str) -> Mapping[str, Any] | None:
    """The filter that :func:`text_of` wrote."""
    if not text:
        return None
    found: Mapping[str, Any] = json_util.loads(text, json_options=json_util.CANONICAL_JSON_OPTIONS)
    return found


def canonical(text: str) -> str:
    """An operator's text as :func:`text_of` writes it; ``ValueError`` if it is not a document."""
    if not text.strip():
        return ""
    try:
        found = json_util.loads(text)
    except _NO_JSON as error:
        raise ValueError(f"the filter is no Extended JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('a filter is a document, as in {"status": "open"}')
    return text_of(found)


def fingerprint(text: str) -> str:
    """Sixteen hexadecimal characters that identify the filter; empty for no filter."""
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""
