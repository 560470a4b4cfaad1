"""Where a change stream starts."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.model.token import ResumeToken


@dataclass(frozen=True, slots=True)
class StartPoint:
    """The start options of ``$changeStream``. The server validates them; without any, from now.

    ``past``: only events after this token come. It need not be one that the server can resume from:
    to resume, a server makes the token's own event again, with its images.
    """

    resume_after: ResumeToken | None = None
    start_after: ResumeToken | None = None
    at_operation_time: Timestamp | None = None
    past: ResumeToken | None = None

    @property
    def token(self) -> ResumeToken | None:
        """The position before the first reply."""
        return self.start_after or self.resume_after

    @property
    def cluster_time(self) -> Timestamp | None:
        """The time of the start, if it is known before the stream opens."""
        return self.at_operation_time or (self.token.cluster_time if self.token else None)

    @property
    def past_token(self) -> StartPoint:
        """The same position, without the event of its token, if that is known to be possible."""
        token = self.resume_after
        if token is None or token.cluster_time is None:
            return self
        past = token if self.past is None or self.past.precedes(token) else self.past
        return StartPoint(at_operation_time=token.cluster_time, past=past)

    def __str__(self) -> str:
        if self.start_after:
            return f"startAfter {self.start_after.digest}"
        if self.resume_after:
            return f"resumeAfter {self.resume_after.digest}"
        if self.at_operation_time:
            time = self.at_operation_time
            after = f", past {self.past.digest}" if self.past else ""
            return f"startAtOperationTime {time.time}.{time.inc}{after}"
        return "now"


NOW = StartPoint()
