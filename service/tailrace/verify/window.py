"""The moment as of which documents are compared with rows, as a cluster time.

A row has at least what the engine knew as handled before the row was read, and no change after the
server's time when it was read. With a look-up, the document of an update may be newer than the
update itself, and a destination without a position of its own does not tell where it stands. So a
row that differs from its document is wrong only if no change touched the document in between.
"""

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.engine import HeldRows
from tailrace.model import StartPoint

_LOOKS_UP = frozenset({"lookup", "updateLookup"})


@dataclass(frozen=True, slots=True)
class Reached:
    """Up to where a handler has handled everything. ``start``: where what follows begins, exactly:
    changes of a transaction have the same ``time``."""

    time: Timestamp
    start: StartPoint


@dataclass(frozen=True, slots=True)
class Window:
    """``at``: as of when the documents are read. Rows have everything up to ``reached``, and
    nothing after ``high``. ``stands``: where the destination stands, except for what it has looked
    up, or later."""

    reached: Reached
    stands: Timestamp
    at: Timestamp
    high: Timestamp


def reached_by(held: HeldRows, handler: Reached) -> Reached:
    """Up to where rows have everything: what the ``handler`` had handled before they were read, if
    others do not write it later."""
    if held.since is None:
        return handler
    return Reached(held.since, StartPoint(at_operation_time=held.since))


def window(
    reached: Reached, position: Timestamp | None, now: Timestamp, full_document: str | None
) -> Window:
    """The window of rows.

    ``reached``: by the handler *before* the rows were read. ``position``: of the change at which
    the destination says that it stood, in the same read as the rows. ``now``: the server's time
    *after* the rows were read. ``full_document``: the stream's.
    """
    stands = max(reached.time, position) if position is not None else reached.time
    high = max(now, stands)
    exact = position is not None and full_document not in _LOOKS_UP
    return Window(reached, stands, stands if exact else high, high)
