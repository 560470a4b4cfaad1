"""The order of changes: a cluster time as one number that sorts, the position."""

_HALF = 2**31
_WORD = 2**32

BEFORE_ALL = -(2**63)
"""The position of events without a cluster time: before all others."""


def position(seconds: int, increment: int) -> int:
    """Seconds and increment are unsigned 32-bit numbers; their order is that of the result."""
    return (seconds - _HALF) * _WORD + increment


def seconds_of(place: int) -> int:
    return (place >> 32) + _HALF


def position_sql(seconds: str, increment: str) -> str:
    """The same in SQL; null for null."""
    return f"shiftleft({seconds} - {_HALF}L, 32) + {increment}"


def time_sql(place: str) -> str:
    """The timestamp of a position; null for null and for :data:`BEFORE_ALL`."""
    return f"timestamp_seconds(nullif(shiftright({place}, 32) + {_HALF}L, 0L))"
