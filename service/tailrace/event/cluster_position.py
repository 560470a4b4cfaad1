"""Cluster times as numbers that sort as they do, and that SQLite, Arrow and Spark can hold."""

EPOCH_SECONDS = 2**31
"""The seconds of the position 0: a cluster time is two unsigned 32-bit numbers."""

BEFORE_ALL = -(2**63)
"""The position of events without a cluster time: before all others."""


def position(seconds: int, increment: int) -> int:
    """The number of a cluster time."""
    return ((seconds - EPOCH_SECONDS) << 32) + increment


def seconds_of(number: int) -> int:
    """The seconds of a position."""
    return (number >> 32) + EPOCH_SECONDS


def increment_of(number: int) -> int:
    """The increment of a position."""
    return number & 0xFFFFFFFF
