"""Times of the server: how far one lags, and how one is shown."""

from datetime import UTC, datetime

from bson.timestamp import Timestamp

MOST_LAG_SECONDS = 10.0
"""A stream with a greater lag must catch up before existing documents are read."""


def lag(now: Timestamp | None, reached: Timestamp | None) -> float | None:
    """Seconds from ``reached`` to ``now``, never negative; ``None`` if either is unknown."""
    if now is None or reached is None:
        return None
    return float(max(now.time - reached.time, 0))


def iso(time: Timestamp | float | None) -> str | None:
    """The time in ISO 8601, of a cluster time or of seconds since 1970; ``None`` if unknown."""
    seconds = time.time if isinstance(time, Timestamp) else time
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def awaited_call(handler: str, about: str, since: float) -> str:
    """That a call of a handler runs since a time (Unix time), for people."""
    on = f" on {about}" if about else ""
    at = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
    return f"waits for a call of handler {handler!r}{on} since {at}"
