"""What an unquoted word means: the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema).

Unlike YAML 1.1, ``no``, ``on`` and ``yes`` are words, ``0123`` and ``1:30`` are not octal or
sexagesimal. Dates stay dates, as operators expect of ``start_at``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime

_INT = re.compile(r"[-+]?[0-9]+\Z")
_PREFIXED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt]|[ \t]+)[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
    r"[ \t]*(Z|[-+][0-9]{2}(:?[0-9]{2})?)?\Z"
)
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

Scalar = str | int | float | bool | datetime | date | None

INT64 = range(-(2**63), 2**63)
"""What BSON can hold."""


def resolve(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises ``ValueError`` with a message for what looks like a number or date and is none.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text) or _PREFIXED.match(text):
        if len(text) > 66 or (number := int(text, 10 if _INT.match(text) else 0)) not in INT64:
            raise ValueError("the number does not fit into 64 bits")
        return number
    if _FLOAT.match(text):
        return float(text)
    if special := _SPECIAL.match(text):
        return float(special[1] + "inf") if special[2] else float("nan")
    if _DATE.match(text):
        return _checked(date.fromisoformat, text)
    if _TIME.match(text):
        return _checked(time, text)
    return text


def _checked(read: Callable[[str], date], text: str) -> date:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"no such date ({error}); put it in quotes if it is text") from None


def time(text: str) -> datetime:
    """An ISO 8601 time; an offset makes it aware. ``ValueError`` where it is none."""
    words = text.strip().upper().split()
    return datetime.fromisoformat("T".join(words[:2]) + "".join(words[2:]))


def utc(value: datetime) -> datetime:
    """The same moment in UTC. ``ValueError`` at the edges of the calendar."""
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("out of range") from error
