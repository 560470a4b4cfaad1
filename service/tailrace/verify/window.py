"""The moments between which a destination's rows stand, as cluster times.

A row has every change up to ``low``, and none after ``high``: with a look-up, the document of an
update may be newer than the update itself, and a destination without a position of its own tells
only that it has what the engine knows as handled. So a row that differs from its document is wrong
if no change touched the document after ``low`` and up to ``high``.
"""

from dataclasses import dataclass

from bson.timestamp import Timestamp

_LOOKS_UP = frozenset({"lookup", "updateLookup"})
_LAST_INCREMENT = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """``at``: the moment as of which the documents are read."""

    low: Timestamp
    at: Timestamp
    high: Timestamp


def window(
    handled: Timestamp, position: Timestamp | None, now: Timestamp, full_document: str | None
) -> Window:
    """The window of rows.

    ``handled``: up to where the handler had handled everything *before* the rows were read.
    ``position``: of the change at which the destination says that it stood, in the same read as the
    rows. ``now``: the server's time *after* the rows were read. ``full_document``: the stream's.

    A position may stand within a transaction, whose changes have the same time: so what is sure
    ends just before it.
    """
    reached = max(handled, position) if position is not None else handled
    high = max(now, reached)
    exact = position is not None and full_document not in _LOOKS_UP
    return Window(before(reached), reached if exact else high, high)


def before(time: Timestamp) -> Timestamp:
    """The last cluster time before this one."""
    if time.inc > 0:
        return Timestamp(time.time, time.inc - 1)
    return Timestamp(max(time.time - 1, 0), _LAST_INCREMENT)
