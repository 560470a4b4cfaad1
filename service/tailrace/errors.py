"""Every error of the service.

A class exists because some caller acts differently on it: the stream resumes, the watcher restarts
or halts, the command line chooses its exit code. Secrets in messages are masked.
"""

import errno
import re
from dataclasses import dataclass
from math import isfinite

from tailrace.masking import without_secrets

# Servers quote resume tokens in their errors; logs and /status show only their beginning.
_LONG_HEX = re.compile(r"\b([0-9A-Fa-f]{8})[0-9A-Fa-f]{24,}\b")


class TailraceError(Exception):
    """The base class of what the service raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the configuration: its path, its line (from 1; 0 is unknown), what to do."""

    path: str
    message: str
    line: int = 0

    def __str__(self) -> str:
        told = f"{self.path}: {self.message}" if self.path else self.message
        return f"{told} (line {self.line})" if self.line else told


class ConfigurationError(TailraceError):
    """Usage, the file, or what it names is wrong. The process exits with 2."""

    def __init__(self, *problems: Problem, source: str = "") -> None:
        self.problems = problems
        self.source = source
        super().__init__("; ".join(map(str, problems)))


class StartRefused(TailraceError):
    """The server cannot be followed, a destination cannot be opened, or another process replays the
    same dead letters. Exits with 1.

    ``may_pass``: another start may succeed without intervention, as after an outage.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class DriverError(TailraceError):
    """A command failed. Drivers' own exceptions do not leave the package ``drivers``."""


class ConnectionFailed(DriverError):
    """No answer of the server: a network error, a timeout, no server to select."""


class ServerUnsuitable(DriverError):
    """After an election the cursor's server no longer fits the read preference; another does."""


class CommandFailed(DriverError):
    """The server answered with an error. ``wire_version`` is the connection's (0 is unknown)."""

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
    """The first fragment of a split event lies before the start point.

    A stream that starts at ``cluster_time``, read from the event's token, has all of its fragments.
    """

    def __init__(self, message: str, cluster_time: object | None) -> None:
        super().__init__(message)
        self.cluster_time = cluster_time


class StreamInterrupted(StreamError):
    """A stop came while the stream was resuming."""


class HandlerFailed(TailraceError):
    """A handler raised on ``event``: the digest of a token, or what else it was asked for."""

    def __init__(self, handler: str, event: str, error: BaseException, why: str = "") -> None:
        what = f"event {event}" if " " not in event else event
        end = f", {why}" if why else ""
        super().__init__(f"handler {handler!r} failed on {what}: {describe(error)}{end}")


class HandlerGaveUp(HandlerFailed):
    """The attempts are spent, and ``why`` the event may not become a dead letter."""


class TemporaryError(Exception):
    """For handlers to raise: try this event again, after ``delay`` seconds if that is given."""

    def __init__(self, message: str = "", delay: float | None = None) -> None:
        super().__init__(message)
        if delay is not None and not (isfinite(delay) and delay >= 0):
            raise ValueError(f"TemporaryError: delay must be seconds from 0 on, not {delay!r}")
        self.delay = delay


class PermanentError(Exception):
    """For handlers to raise: no further attempt can handle this event."""


class DestinationUnavailable(TailraceError):
    """A built-in handler's destination is out of order: no dead letters, restart with back-off."""


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EROFS: "the file system may have been remounted read-only",
    errno.EACCES: "this user may not write there any more",
    errno.EIO: "look at the disk",
}


def advice(error: OSError) -> str:
    """What an operator can do about an error of the operating system, if known."""
    return _ADVICE.get(error.errno or 0, "")


class DeliveryInterrupted(TailraceError):
    """A stop came while an event waited for its next attempt. The event will come again."""


class TaskCancelled(TailraceError):
    """Foreign code cancelled a task of the service; its scope restarts."""


class DeadLetterError(TailraceError):
    """A dead letter could not be stored; the scope restarts from its checkpoint."""


class InvalidPosition(TailraceError):
    """A handler returned something that is no position; asking again cannot help."""


class CheckpointError(TailraceError):
    """The checkpoint store failed in a way that may pass: restart with back-off."""


class CheckpointCorrupt(CheckpointError):
    """A stored checkpoint cannot be read. Manual intervention is required."""


class CheckpointFenced(CheckpointError):
    """A newer epoch or sequence is stored: another process follows this scope now."""


class LeaseLost(CheckpointFenced):
    """This process's lease of the scope is over: it hands nothing over, and saves nothing."""


class LeaseError(TailraceError):
    """The leases in the store could not be read or changed; a change may have taken effect."""


class SegmentUnreadable(TailraceError):
    """A file of the lake is damaged, foreign or misplaced. Manual intervention is required."""


class PipelineRefused(TailraceError):
    """The lake, the tables or this machine do not allow the pipeline to run. Exits with 1."""


class TablesFenced(TailraceError):
    """Another pipeline committed to the same table, so this one's batch was not written."""


class ScopeHalted(TailraceError):
    """No restart can help this scope. Manual intervention is required."""


LONGEST_ERROR = 4000
"""Characters shown of a foreign error. One of the service, which may quote it, has twice that."""


def describe(error: BaseException) -> str:
    """One line for logs and status: the class and the message, shortened and masked."""
    ours = isinstance(error, TailraceError)
    try:
        text = _one_line(str(error), 2 * LONGEST_ERROR if ours else LONGEST_ERROR)
    except Exception:  # noqa: BLE001 - the __str__ of a handler's error
        text = ""
    if ours and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def shortened(text: str, longest: int) -> str:
    """The text; of a longer one both ends, and how much is left out between them."""
    return text if len(text) <= longest else _ends(text, text, longest, len(text))


def _one_line(text: str, longest: int) -> str:
    if len(text) <= 4 * longest:
        return shortened(_masked_line(text), longest)
    # Cut roughly before it is masked, so that megabytes do not block the event loop.
    head, tail = _masked_line(text[: 2 * longest]), _masked_line(text[-2 * longest :])
    return _ends(head, tail, longest, len(text))


def _masked_line(text: str) -> str:
    return without_secrets(" ".join(text.split()))


def _ends(head: str, tail: str, longest: int, length: int) -> str:
    left_out = f"({length - longest} characters left out)"
    return f"{head[: longest * 3 // 4]} … {left_out} … {tail[-(longest // 4) :]}"
