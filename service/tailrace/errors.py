"""Every error of the service.

Each class exists because a caller handles it differently: the stream resumes, the watcher restarts
or halts, the command line chooses its exit code. Secrets in messages are masked.
"""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from tailrace.masking import masked_line, without_secrets

# Servers quote resume tokens in their errors; logs and /status show only the first characters.
_LONG_HEX = re.compile(r"\b([0-9A-Fa-f]{8})[0-9A-Fa-f]{24,}\b")


class TailraceError(Exception):
    """The base class of all errors that the service raises itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the configuration: its path, its line (from 1; 0: unknown), and what to do.

    ``file``: the included file that has the line; empty for the configuration itself.
    """

    path: str
    message: str
    line: int = 0
    file: str = ""

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        parts = (self.file, f"line {self.line}" if self.line else "")
        return f"{text} ({where})" if (where := ", ".join(filter(None, parts))) else text


class ConfigurationError(TailraceError):
    """The usage, the file, or something that the file names is wrong. The process exits with 2."""

    def __init__(self, *problems: Problem, source: str = "") -> None:
        self.problems = problems
        self.source = source
        super().__init__("; ".join(map(str, problems)))


class StartRefused(TailraceError):
    """The server cannot be followed, a destination cannot be opened, or another process replays the
    same dead letters. The process exits with 1.

    ``may_pass``: another start may succeed without intervention, as after an outage.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class DriverError(TailraceError):
    """A command failed. The drivers' own exceptions never leave the package ``drivers``."""


class ConnectionFailed(DriverError):
    """The server did not answer: a network error, a timeout, or no suitable server."""


class ServerUnsuitable(DriverError):
    """After an election the cursor's server does not fit the read preference; another one does."""


class CommandFailed(DriverError):
    """The server answered with an error. ``wire_version`` is the connection's (0: unknown)."""

    def __init__(
        self,
        message: str,
        *,
        code: int,
        code_name: str = "",
        labels: frozenset[str] = frozenset(),
        wire_version: int = 0,
    ) -> None:
        super().__init__(without_secrets(_LONG_HEX.sub(r"\1…", message)))
        self.code = code
        self.code_name = code_name
        self.labels = labels
        self.wire_version = wire_version

    def __str__(self) -> str:
        name = f" {self.code_name}" if self.code_name else ""
        return f"{self.args[0]} (code {self.code}{name})"


class StreamError(TailraceError):
    """The change stream cannot continue."""


class MissingResumeToken(StreamError):
    """An event has no ``_id``, because a pipeline stage removed it."""


class StreamEnded(StreamError):
    """The server closed the cursor with neither an invalidate event nor an error."""


class StreamBeganInMidEvent(StreamError):
    """The first fragment of a split event is before the start point.

    A stream that starts at ``cluster_time``, which the event's token has, gets all its fragments.
    """

    def __init__(self, message: str, cluster_time: object | None) -> None:
        super().__init__(message)
        self.cluster_time = cluster_time


class StreamInterrupted(StreamError):
    """A stop came while the stream was resuming."""


class HandlerFailed(TailraceError):
    """A handler raised on ``what``: an event, by its key, or another description of the call."""

    def __init__(self, handler: str, what: str, error: BaseException, why: str = "") -> None:
        end = f", {why}" if why else ""
        super().__init__(f"handler {handler!r} failed on {what}: {describe(error)}{end}")


class HandlerGaveUp(HandlerFailed):
    """The attempts are spent; ``why``: the reason that the event may not become a dead letter."""


class TemporaryError(Exception):
    """Raised by handlers: try this event again, after ``delay`` seconds if given."""

    def __init__(self, message: str = "", delay: float | None = None) -> None:
        super().__init__(message)
        if delay is not None and not (isfinite(delay) and delay >= 0):
            raise ValueError(f"TemporaryError: delay must be seconds from 0 on, not {delay!r}")
        self.delay = delay


class PermanentError(Exception):
    """Raised by handlers: no further attempt can handle this event."""


class AttemptTimedOut(Exception):
    """An attempt took longer than the handler's ``timeout_seconds``."""


class Unavailable(Exception):
    """Raised by handlers: the destination is down. The call is repeated until it answers.

    ``retry_after``: seconds until the next try; without it, at most 15 s.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        if retry_after is not None and not (isfinite(retry_after) and retry_after >= 0):
            raise ValueError(f"Unavailable: retry_after must be seconds, not {retry_after!r}")
        self.retry_after = retry_after


class BatchTooLarge(Unavailable):
    """The same, but fewer events may not meet this limit. Of one event it is an outage."""


class Refused(Exception):
    """Raised by handlers of batches: the destination refuses these events, and no others.

    ``reasons``: by the event's index in the batch, from 0. Nothing of the batch was stored.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__("; ".join(f"event {at}: {why}" for at, why in self.reasons.items()))

    def of(self, count: int) -> Mapping[int, str]:
        """The reasons, if they are about a batch of ``count`` events; else none."""
        if not all(type(at) is int and 0 <= at < count for at in self.reasons):
            return {}
        return {at: str(why) or "no reason was given" for at, why in self.reasons.items()}


class EventRefused(TailraceError):
    """The destination refuses one event, for a reason that another attempt cannot change."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the destination refuses it: {reason}")


class Fenced(Exception):
    """Raised by handlers: another process writes to the destination now, so give the scope up."""


class DestinationUnavailable(TailraceError):
    """A destination is down and has lost what it had accepted: the scope starts again, with
    back-off. No event is at fault."""


class PositionMoved(TailraceError):
    """Somebody else changed a destination's position during a run: the scope starts again."""


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EROFS: "the file system may have been remounted read-only",
    errno.EACCES: "this user may not write there any more",
    errno.EIO: "look at the disk",
}


def advice(error: OSError) -> str:
    """What an operator can do about an error of the operating system; empty if unknown."""
    return _ADVICE.get(error.errno or 0, "")


class DeliveryInterrupted(TailraceError):
    """A stop came while an event waited for its next attempt. The event will come again."""


class TaskCancelled(TailraceError):
    """Code outside the service cancelled one of its tasks; the scope restarts."""


class DeadLetterError(TailraceError):
    """A dead letter could not be stored; its handler starts again from its position."""


class InvalidPosition(TailraceError):
    """A handler returned something that is not a position; another attempt cannot help."""


class CheckpointError(TailraceError):
    """The checkpoint store failed, perhaps temporarily: restart with back-off."""


class CheckpointCorrupt(CheckpointError):
    """A stored checkpoint cannot be read. Manual intervention is required."""


class CheckpointFenced(CheckpointError):
    """A newer epoch or sequence is stored: another process follows this scope now. Nothing of this
    process is stored any more, neither a position nor a dead letter."""


class LeaseLost(CheckpointFenced):
    """This process no longer has the scope's lease: it hands nothing over, and saves nothing."""


class LeaseError(TailraceError):
    """The leases in the store could not be read or changed; a change may have taken effect."""


class SegmentUnreadable(TailraceError):
    """A file of the lake is damaged, foreign or misplaced. Manual intervention is required."""


class PipelineRefused(TailraceError):
    """The pipeline cannot run with this lake, these tables or on this machine. Exits with 1."""


class TablesFenced(TailraceError):
    """Another pipeline committed to the same table, so the batch was not committed to it."""


class SourceRestored(TailraceError):
    """The source was restored from a backup. No position of its former history can be used."""


class ScopeHalted(TailraceError):
    """No restart can help this scope. Manual intervention is required."""


LONGEST_ERROR = 4000
"""The most characters shown of a foreign error; twice as many of our own, which may quote it."""


def describe(error: BaseException) -> str:
    """One line for logs and status: the class and the message, shortened and masked."""
    ours = isinstance(error, TailraceError)
    try:
        text = masked_line(str(error), 2 * LONGEST_ERROR if ours else LONGEST_ERROR)
    except Exception:  # noqa: BLE001 - the __str__ of a handler's error
        text = ""
    if ours and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def how_to_install(extra: str) -> str:
    """What provides an extra; no package index has Tailrace."""
    own = {"lake": "lake", "pipeline": "pipeline", "otel": "destinations or lake"}
    target = own.get("pipeline" if extra == "iceberg" else extra, "destinations")
    return f"pip install '.[{extra}]' in a checkout, or the image's target {target}"
