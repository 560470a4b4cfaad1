"""A time as text, wherever people or programs read it to the second."""

from datetime import UTC, datetime

from bson.timestamp import Timestamp


def utc_text(time: Timestamp | datetime) -> str:
    """The time in UTC, in ISO 8601 to the second: ``2026-11-30T12:00:00Z``."""
    moment = time.as_datetime() if isinstance(time, Timestamp) else time
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
