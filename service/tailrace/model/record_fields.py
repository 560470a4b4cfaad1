"""Reading the fields of stored records, strictly: a wrong position is worse than none.

Every function takes the record and the field's name, and raises ``KeyError`` or ``ValueError``
for anything that its writer cannot have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from bson.int64 import Int64
from bson.timestamp import Timestamp

from tailrace.model.token import ResumeToken

T = TypeVar("T")

LARGEST = 2**63 - 1
"""The greatest number that every store can keep: a signed 64-bit integer in SQLite and BSON."""


def typed(record: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """A value of exactly that type; a boolean is no number, half a surrogate pair no text."""
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key} is {type(value).__name__}, not {kind.__name__}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{key} is no text that UTF-8 can hold") from error
    return value


def require_format(record: Mapping[str, Any], known: int) -> None:
    """Refuses what is no record, and a record of another version."""
    if not isinstance(record, Mapping):
        raise ValueError(f"it is {type(record).__name__}, not a record")
    found = typed(record, "format", int)
    if found != known:
        raise ValueError(f"format {found} is not {known}")


def count(record: Mapping[str, Any], key: str) -> int:
    """A number from 0 to ``LARGEST``."""
    value = typed(record, key, int)
    if not 0 <= value <= LARGEST:
        raise ValueError(f"{key} is {value}, not between 0 and {LARGEST}")
    return int(value)


def time(record: Mapping[str, Any], key: str) -> Timestamp | None:
    """What :func:`time_parts` wrote."""
    value = record[key]
    if value is None:
        return None
    # Timestamp() would take a datetime or a boolean too. BSON gives large numbers as Int64.
    numbers = isinstance(value, list) and all(type(part) in (int, Int64) for part in value)
    if not numbers or len(value) != 2:
        raise ValueError(f"{key} is not a list of seconds and increment")
    try:
        return Timestamp(*value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{key}: {error}") from error


def time_parts(time: Timestamp | None) -> list[int] | None:
    """Seconds and increment."""
    return None if time is None else [time.time, time.inc]


def moment(record: Mapping[str, Any], key: str) -> datetime:
    """An ISO time with its zone, in UTC."""
    text = typed(record, key, str)
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is not None:
            return value.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{key} is no ISO time with its zone")


def token(record: Mapping[str, Any], key: str) -> ResumeToken | None:
    """What ``ResumeToken.to_json`` wrote."""
    if record[key] is None:
        return None
    try:
        return ResumeToken.from_json(typed(record, key, str))
    except ValueError as error:
        raise ValueError(f"{key} is no resume token: {error}") from error


def texts(record: Mapping[str, Any], key: str) -> dict[str, str]:
    """A mapping of texts; empty where the field is missing."""
    value = record.get(key, {})
    if not isinstance(value, dict) or not all(
        isinstance(text, str) for pair in value.items() for text in pair
    ):
        raise ValueError(f"{key} is not a mapping of texts")
    return dict(value)


def records(record: Mapping[str, Any], key: str) -> dict[str, Mapping[str, Any]]:
    """A mapping of records; empty where the field is missing."""
    value = record.get(key, {})
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(each, Mapping) for name, each in value.items()
    ):
        raise ValueError(f"{key} is not a mapping of records")
    return dict(value)


def fault(error: KeyError | ValueError) -> str:
    """What to say of a record that one of these functions refused."""
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
