"""Which of two cluster times is later."""

from bson.timestamp import Timestamp


def later(one: Timestamp | None, other: Timestamp | None) -> Timestamp | None:
    """The later of two times; the known one if only one is known."""
    if one is None or other is None:
        return one or other
    return max(one, other)
