"""From relaxed to canonical Extended JSON, as far as relaxed text tells the types.

A document may have fields that are named as Extended JSON names types (``$date``): an object is
read as a typed value only where it is exactly as our writer writes one, and never where only a
document is possible.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_INT, _GREATEST_INT = -(2**31), 2**31 - 1

_FIELD_MAPS = ("updatedFields", "disambiguatedPaths")
"""Fields of an update description that hold the names of fields."""


def from_relaxed(text: str) -> str:
    """The canonical text of a document's relaxed one. Raises ``ValueError`` for what is no JSON."""
    document = json.loads(text)
    made = {
        name: _document(value) if name in _FIELD_MAPS and isinstance(value, dict) else _value(value)
        for name, value in document.items()
    }
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _document(document: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in document.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _typed(value) or _document(value)
    if isinstance(value, list):
        return [_value(each) for each in value]
    if isinstance(value, float):
        return {"$numberDouble": repr(value)}
    if isinstance(value, int) and not isinstance(value, bool):
        kind = "$numberInt" if _LEAST_INT <= value <= _GREATEST_INT else "$numberLong"
        return {kind: str(value)}
    return value


def _typed(pairs: dict[str, Any]) -> dict[str, Any] | None:
    """The canonical form of the typed values that are written with plain numbers or as dates."""
    match pairs:
        case {"$date": str(text), **others} if not others:
            try:
                milliseconds = (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)
            except (ValueError, TypeError):
                return None
            return {"$date": {"$numberLong": str(milliseconds)}}
        case {"$timestamp": {"t": int(), "i": int(), **more}, **others} if not (others or more):
            return pairs
        case {"$minKey": 1, **others} | {"$maxKey": 1, **others} if not others:
            return pairs
    return None
