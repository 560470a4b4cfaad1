"""The texts by which a destination knows which DDL it has applied: they sort as the events do."""

from tailrace.envelope.identity import event_id
from tailrace.event import ChangeEvent
from tailrace.event.layout import INCREMENT, SECONDS

TIME_DIGITS = 16
"""The first digits of a mark are its cluster time."""


def cluster_time_digits(event: ChangeEvent) -> str | None:
    """The cluster time as a text that sorts as it does."""
    parts = event.parts
    seconds = parts[SECONDS]
    return None if seconds is None else f"{seconds << 32 | parts[INCREMENT]:016x}"


def ddl_mark(event: ChangeEvent) -> str:
    """The mark of an event that is not about a document: resume tokens sort as the events do."""
    return f"{cluster_time_digits(event) or ''}{event_id(event)}"


def is_before(event: ChangeEvent, mark: str) -> bool:
    """Whether a change is before the event of a mark: a position was set back, so it comes again.

    Rows of a snapshot have no place among changes.
    """
    time = None if event.operation_type == "read" else cluster_time_digits(event)
    return time is not None and time < mark[:TIME_DIGITS]
