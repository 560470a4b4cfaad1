"""What watchers and the server report when Prometheus scrapes. ``None`` is unknown."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ScopeGauges:
    """The present values of one scope.

    ``lags`` are seconds of cluster time by stage (``read``, ``handled``, ``committed``), the other
    times are Unix time in seconds. ``resumes`` are counts by reason.
    """

    state: str
    in_flight_events: int = 0
    in_flight_bytes: int = 0
    lags: Mapping[str, float] = field(default_factory=dict)
    checkpoint_saved_at: float | None = None
    last_round_trip: float | None = None
    resumes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerGauges:
    """The present values of the server, and its oplog as read ``oplog_age`` seconds ago.

    ``oplog_window`` is the seconds between its first and its last entry, ``oplog_fill`` the share
    of its size that is in use.
    """

    up: bool | None = None
    oplog_window: float | None = None
    oplog_fill: float | None = None
    oplog_age: float | None = None
