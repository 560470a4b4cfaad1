"""The setting ``headers``: more headers of each request, which may be secret."""

import re
from collections.abc import Mapping
from typing import Any

from tailrace.destination import Secret
from tailrace.destination.secret import MASK, is_secret_name, secret_of
from tailrace.destination.settings import HEADER_NAME, Interpolated, Unresolved

_NAME = re.compile(HEADER_NAME + r"\Z")
_RESERVED = re.compile(
    r"(?:webhook-.*|ce-.*|tailrace-key|connection|content-length|transfer-encoding)\Z"
)
_SECRET_NAMES = frozenset({"cookie"})


def request_headers(value: Any) -> Mapping[str, Secret]:
    """The headers by their names in lower case. Raises ``ValueError``."""
    if not isinstance(value, Mapping):
        raise ValueError("must be a mapping of names to texts")
    headers: dict[str, Secret] = {}
    for key, text in value.items():
        name = str(key).lower()
        if not _NAME.match(name):
            raise ValueError(f"{key!r} is not the name of a header")
        if _RESERVED.match(name):
            raise ValueError(f"{key!r} is a header that Tailrace sets itself")
        if isinstance(text, Unresolved):
            continue  # that problem is reported already
        if name in headers:
            raise ValueError(f"{key!r} is given twice")
        try:
            headers[name] = _value(name, text)
            header_text(headers[name].read())
        except ValueError as error:
            raise ValueError(f"{key!r}: {error}") from None
    return headers


def _value(name: str, value: Any) -> Secret:
    """A value that the file itself has is secret only if its name says so: it may be any word."""
    plain = isinstance(value, str) and value.strip() and not isinstance(value, Interpolated)
    if plain and not is_secret_name(name) and name not in _SECRET_NAMES:
        return Secret(value)
    return secret_of(value)


def header_text(text: str) -> str:
    """The value of a header. Raises ``ValueError`` for one that cannot be sent."""
    if not text.isprintable():
        raise ValueError("must be a text without line ends and control characters")
    return text


def masked(given: Mapping[str, Secret]) -> dict[str, Any]:
    """The headers as output shows them."""
    return {name: {"file": each.file} if each.file else MASK for name, each in given.items()}
