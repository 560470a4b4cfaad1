"""What a destination sends for one event."""

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.event.trace_context import TraceContext


class Message(NamedTuple):
    """Key and value as UTF-8, and headers. A tuple, because one is made for every event.

    A message with a key and without a value says that the document is gone (a tombstone). A message
    with neither says nothing: the envelope has no form for this event, and nothing is to be sent.
    """

    key: bytes | None
    value: bytes | None
    id: str = ""
    """The event's, see :func:`tailrace.envelope.identity.event_id`."""
    headers: Sequence[tuple[str, str]] = ()
    data_at: int = 0
    """Where :attr:`data` begins in the value."""
    trace: TraceContext | None = None
    """The one that the document carries, if its scope says where."""

    @property
    def data(self) -> bytes | None:
        """The body of a message in CloudEvents' binary mode, whose attributes are the headers.

        In other envelopes, the whole value.
        """
        if self.value is None or not self.data_at:
            return self.value
        return self.value[self.data_at : -1]

    @property
    def trace_headers(self) -> Sequence[tuple[str, str]]:
        """Those of W3C Trace Context; none without a trace."""
        return () if self.trace is None else self.trace.headers

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return self.key is None and self.value is None


NOTHING = Message(None, None)
