"""Where a change stream starts."""

from dataclasses import dataclass

from bson.timestamp import Timestamp

from tailrace.model.token import ResumeToken


@dataclass(frozen=True, slots=True)
class StartPoint:
    """The start options of ``$changeStream``. The server validates them; without any, from now."""

    resume_after: ResumeToken | None = None
    start_after: ResumeToken | None = None
    at_operation_time: Timestamp | None = None

    @property
    def token(self) -> ResumeToken | None:
        """The position before the first reply."""
        return self.start_after or self.resume_after

    @property
    def cluster_time(self) -> Timestamp | None:
        """The time of the start, if it is known before the stream opens."""
        return self.at_operation_time or (self.token.cluster_time if self.token else None)

    def __str__(self) -> str:
        if self.start_after:
            return f"startAfter {self.start_after.digest}"
        if self.resume_after:
            return f"resumeAfter {self.resume_after.digest}"
        if self.at_operation_time:
            time = self.at_operation_time
            return f"startAtOperationTime {time.time}.{time.inc}"
        return "now"


NOW = StartPoint()
