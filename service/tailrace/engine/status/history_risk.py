"""Whether the oplog still reaches back to where a scope that does not read continues."""

from bson.timestamp import Timestamp

from tailrace.model.time_text import utc_text
from tailrace.stream import OplogRange

_NEAR = 0.75
"""The part of the oplog's span after which a position that stands still is at risk."""


def history_risk(at: Timestamp | None, now: Timestamp | None, oplog: OplogRange | None) -> str:
    """Why a scope that continues at that time loses changes, or soon will; empty if it does not."""
    if at is None or now is None or oplog is None:
        return ""
    if at < oplog.begin:
        return (
            f"the oplog begins at {utc_text(oplog.begin)}, after the scope's position of "
            f"{utc_text(at)}: changes are lost (see on_history_lost)"
        )
    age = now.time - at.time
    if age < _NEAR * oplog.seconds:
        return ""
    left = max(oplog.seconds - age, 0)
    return (
        f"the oplog spans {oplog.seconds:.0f} s, and the scope's position is {age} s old: changes "
        f"are lost in about {left:.0f} s"
    )
