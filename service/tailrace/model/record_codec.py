"""Turns dataclasses into records of JSON types, and back.

Reading is strict: a wrong position is worse than none.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache, partial
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from bson.int64 import Int64
from bson.timestamp import Timestamp

from tailrace.model.snapshot import DocumentId
from tailrace.model.token import DIGEST, ResumeToken

T = TypeVar("T")

LARGEST = 2**63 - 1
"""The greatest number that every store can keep: a signed 64-bit integer in SQLite and BSON."""

INLINE = {"inline": True}
"""Metadata of a field whose own fields stand in the record beside the others."""

_DIGESTS = re.compile(rf"(?:[0-9a-f]{{{DIGEST}}})*\Z")


class WrittenOnce:
    """A base of dataclasses of which one record may have thousands, and is written often: what is
    stored of such an instance is made once."""

    __slots__ = ("_stored",)
    _stored: Mapping[str, Any]

    @property
    def stored_fields(self) -> Mapping[str, Any]:
        """It as a mapping of JSON types."""
        if not hasattr(self, "_stored"):
            object.__setattr__(self, "_stored", document(self))
        return self._stored


def document(record: Any) -> dict[str, Any]:
    """A dataclass as a mapping of JSON types, without empty mappings and ``None`` defaults."""
    made: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if field.metadata == INLINE:
            made |= document(value)
        elif value != {} and not (value is field.default is None):
            made[field.name] = _written(value)
    return made


def instance(kind: type[T], record: Any, version: int | None = None) -> T:
    """The dataclass from a record that :func:`document` made; ``version``: its ``format``.

    Raises ``ValueError``, which names the field, for anything else.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"it is {type(record).__name__}, not a record")
    if version is not None and (found := _value(record, "format", _whole_number)) != version:
        age = "a newer" if found > version else "an earlier"
        raise ValueError(f"format {found} is not {version}: {age} version of Tailrace wrote it")
    of: Any = kind
    values: dict[str, Any] = {}
    for field in fields(of):
        hint = _types(of)[field.name]
        if field.metadata == INLINE:
            values[field.name] = instance(hint, record)
        elif field.name in record or field.default is field.default_factory is MISSING:
            values[field.name] = _value(record, field.name, _reader(hint))
    return kind(**values)


def _written(value: Any) -> Any:
    match value:
        case WrittenOnce():
            return value.stored_fields
        case ResumeToken():
            return value.to_json()
        case DocumentId():
            return value.to_text()
        case Timestamp():
            return [value.time, value.inc]
        case datetime():
            return value.astimezone(UTC).isoformat()
        case Enum():
            return value.value
        case frozenset():
            return "".join(sorted(value))
        case tuple():
            return list(map(_written, value))
        case Mapping():
            return {name: _written(each) for name, each in value.items()}
    return document(value) if is_dataclass(value) else value


def _value(record: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T:
    if name not in record:
        raise ValueError(f"it lacks {name!r}")
    try:
        return read(record[name])
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {type(value).__name__}, not text")
    value.encode()  # raises ValueError for half of a surrogate pair
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"is {type(value).__name__}, not bytes")
    return bytes(value)


def _whole_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -LARGEST <= value <= LARGEST:
        raise ValueError("is not a whole number of 64 bits")
    return int(value)


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_text(value))
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError("is not an ISO time with its zone")


def _time(value: Any) -> Timestamp:
    # Timestamp() also accepts a datetime or a boolean. BSON gives large numbers as Int64.
    numbers = isinstance(value, list) and all(type(part) in (int, Int64) for part in value)
    if not numbers or len(value) != 2:
        raise ValueError("is not a list of seconds and increment")
    return Timestamp(*value)


def _digests(value: Any) -> frozenset[str]:
    if not _DIGESTS.match(_text(value)):
        raise ValueError("is not a row of digests")
    return frozenset(value[at : at + DIGEST] for at in range(0, len(value), DIGEST))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("is not a number")
    return float(value)


def _sequence(read: Callable[[Any], T], value: Any) -> tuple[T, ...]:
    if not isinstance(value, list):
        raise ValueError("is not a list")
    return tuple(map(read, value))


def _mapping(read: Callable[[Any], T], value: Any) -> Mapping[str, T]:
    if not isinstance(value, Mapping):
        raise ValueError("is not a mapping")
    return {_text(name): read(each) for name, each in value.items()}


_READERS: Mapping[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _whole_number,
    float: _number,
    bool: _truth,
    bytes: _bytes,
    bytes | None: lambda value: _bytes(value) or None,
    datetime: _moment,
    ResumeToken: lambda value: ResumeToken.from_json(_text(value)),
    DocumentId: lambda value: DocumentId.from_text(_text(value)),
    Timestamp: _time,
    frozenset[str]: _digests,
    Any: lambda value: value,
}


_types = cache(get_type_hints)


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    if hint in _READERS:
        return _READERS[hint]
    if get_origin(hint) is UnionType:
        read = _reader(get_args(hint)[0])
        return lambda value: None if value is None else read(value)
    if get_origin(hint) is tuple:
        return partial(_sequence, _reader(get_args(hint)[0]))
    if get_origin(hint) is Mapping:
        return partial(_mapping, _reader(get_args(hint)[1]))
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(instance, hint)
    return lambda value: hint(_text(value))
