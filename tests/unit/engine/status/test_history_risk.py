"""Whether the oplog still reaches back to where a paused scope continues."""

import pytest
from bson.timestamp import Timestamp

from tailrace.engine.status.history_risk import history_risk
from tailrace.stream import OplogRange

BEGIN, NOW = Timestamp(100, 5), Timestamp(140, 1)


@pytest.mark.parametrize(
    ("at", "risk"),
    [
        (Timestamp(99, 9), "changes are lost (see on_history_lost)"),
        (Timestamp(100, 4), "changes are lost (see on_history_lost)"),
        (BEGIN, "changes are lost in about 0 s"),
        (Timestamp(111, 1), ""),
    ],
)
def test_the_first_entry_of_the_oplog_tells_what_is_lost(at: Timestamp, risk: str) -> None:
    """Of two entries of one second, the later one may be the first that is left."""
    told = history_risk(at, NOW, OplogRange(BEGIN, 40.0))
    assert told.endswith(risk)
    assert bool(told) is bool(risk)
