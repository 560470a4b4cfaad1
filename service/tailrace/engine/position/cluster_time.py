"""Cluster times: which of two is later, and what is before one."""

from bson.timestamp import Timestamp


def later(one: Timestamp | None, other: Timestamp | None) -> Timestamp | None:
    """The later of two times; the known one if only one is known."""
    if one is None or other is None:
        return one or other
    return max(one, other)


def before(time: Timestamp) -> Timestamp:
    """The last possible time before ``time``."""
    if time.inc:
        return Timestamp(time.time, time.inc - 1)
    return Timestamp(max(time.time - 1, 0), 2**32 - 1)
