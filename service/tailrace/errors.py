"""Every error of the service.

A class exists because some caller acts differently on it: the stream resumes, the watcher
restarts or halts, the command line chooses its exit code. What they say is masked first.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from math import isfinite

from tailrace.masking import without_secrets

# Servers quote resume tokens in their errors; logs and /status never show a whole one.
_LONG_HEX = re.compile(r"\b([0-9A-Fa-f]{8})[0-9A-Fa-f]{24,}\b")


class TailraceError(Exception):
    """The root: everything that the service raises on purpose."""


# --- before the service runs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the configuration: where, and what to do about it."""

    path: str
    message: str
    line: int = 0
    """Of the file, from 1; 0 where it is not known."""

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
    """The server, as it is, cannot be followed: unreachable, standalone, refused. Exits with 1.

    Or a destination cannot be opened as things are, and nothing is wrong with the configuration.
    ``may_pass``: another start may go better without anybody's help, as where no server is there.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


# --- talking to the server -----------------------------------------------------------------


class DriverError(TailraceError):
    """A command did not succeed. Drivers' own exceptions never pass the driver seam."""


class ConnectionFailed(DriverError):
    """Anything that is not the server's own answer: network, timeout, no server to select."""


class ServerUnsuitable(DriverError):
    """The cursor's server no longer suits the read preference (an election), and another does."""


class CommandFailed(DriverError):
    """The server answered with an error.

    ``wire_version`` is that of the connection which ran the command (0 while unknown): the
    Change Streams specification decides by it what is resumable.
    """

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


# --- one change stream ---------------------------------------------------------------------


class StreamError(TailraceError):
    """The change stream cannot go on by itself."""


class MissingResumeToken(StreamError):
    """An event came without its ``_id``: a pipeline stage projected it away."""


class StreamEnded(StreamError):
    """The server closed the cursor with neither an invalidate event nor an error."""


class StreamBeganInMidEvent(StreamError):
    """The first fragment of a split event lies before the start point.

    ``cluster_time`` is the event's, as far as its token tells: a stream that begins there has the
    whole of it.
    """

    def __init__(self, message: str, cluster_time: object | None) -> None:
        super().__init__(message)
        self.cluster_time = cluster_time


class StreamInterrupted(StreamError):
    """A stop came while the stream was resuming; nothing is wrong."""


# --- handling ------------------------------------------------------------------------------


class HandlerFailed(TailraceError):
    """A handler raised. The cause is chained; ``event`` names what it failed on: the event by its
    token's digest, or another thing that it was asked for."""

    def __init__(self, handler: str, event: str, error: BaseException) -> None:
        self.handler = handler
        self.event = event
        what = f"event {event}" if " " not in event else event
        super().__init__(f"handler {handler!r} failed on {what}: {describe(error)}")


class TemporaryError(Exception):
    """For handlers to raise: try this event again, after ``delay`` seconds if that is given.

    Raises :class:`ValueError` or :class:`TypeError` instead for a delay that is no number of
    seconds: that fails the attempt as well, and is retried by the policy.
    """

    def __init__(self, message: str = "", delay: float | None = None) -> None:
        super().__init__(message)
        if delay is not None and not (isfinite(delay) and delay >= 0):
            raise ValueError(f"TemporaryError: delay must be seconds from 0 on, not {delay!r}")
        self.delay = delay


class PermanentError(Exception):
    """For handlers to raise: this event will never succeed, do not try it again."""


class HandlerGaveUp(HandlerFailed):
    """The attempts are spent, and the event may not be set aside: ``why`` says so."""

    def __init__(self, handler: str, event: str, error: BaseException, why: str) -> None:
        super().__init__(handler, event, error)
        self.args = (f"{self.args[0]}, {why}",)


class DestinationUnavailable(TailraceError):
    """A handler's destination takes nothing now (a full disk, a silent object store).

    That is no event's fault: nothing is set aside, and the scope starts again from the checkpoint
    until it works. For the handlers of this service to raise.
    """


_ADVICE = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EROFS: "the file system may have been remounted read-only",
    errno.EACCES: "this user may not write there any more",
    errno.EIO: "look at the disk",
}


def advice(error: OSError) -> str:
    """What a person can do about an error of the operating system; "" where that is not known."""
    return _ADVICE.get(error.errno or 0, "")


class DeliveryInterrupted(TailraceError):
    """A stop came while an event waited for its next attempt: it will come again."""


class TaskCancelled(TailraceError):
    """Something cancelled a task of ours, and it was not this service: its scope starts again."""


class DeadLetterError(TailraceError):
    """An event could not be set aside: its scope starts again from the checkpoint."""


# --- positions -----------------------------------------------------------------------------


class InvalidPosition(TailraceError):
    """What a handler said of its own position is no position: no further question mends that."""


class CheckpointError(TailraceError):
    """The store of positions failed in a way that may pass: restart with back-off."""


class CheckpointCorrupt(CheckpointError):
    """What is stored cannot be read as a checkpoint. A person must repair it."""


class CheckpointFenced(CheckpointError):
    """A newer epoch or sequence is stored: another process follows this scope now."""


class SegmentUnreadable(TailraceError):
    """A file of the lake is damaged, foreign or misplaced. Manual intervention is required."""


# --- tables --------------------------------------------------------------------------------


class PipelineRefused(TailraceError):
    """The lake, the tables or this machine, as they are, cannot be worked with. Exits with 1."""


class TablesFenced(TailraceError):
    """Another pipeline has committed to the same table: this one's batch was not written."""


class ScopeHalted(TailraceError):
    """No restart mends this scope: a person must act on what the message says."""


LONGEST_ERROR = 4000
"""Characters that log, ``/status`` and dead letters show of what others raise, however long it is.
Errors of our own, which may quote one of those, have twice as many."""


def describe(error: BaseException) -> str:
    """One line for logs and status: the class, then the message if there is one, shortened."""
    ours = isinstance(error, TailraceError)
    try:
        text = _one_line(str(error), 2 * LONGEST_ERROR if ours else LONGEST_ERROR)
    except Exception:  # noqa: BLE001 - handlers raise what they like; it must not end a watcher
        text = ""
    if ours and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def shortened(text: str, longest: int) -> str:
    """The text; of a longer one both ends, and between them how much was left out."""
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    return _with_gap(text[: longest * 3 // 4], left_out, text[-(longest // 4) :])


def _one_line(text: str, longest: int) -> str:
    if len(text) <= 4 * longest:
        return shortened(without_secrets(" ".join(text.split())), longest)
    # Masked before it is cut, and cut before that: else megabytes would keep the event loop.
    head, tail = (
        without_secrets(" ".join(end.split()))
        for end in (text[: 2 * longest], text[-2 * longest :])
    )
    left_out = len(text) - longest
    return _with_gap(head[: longest * 3 // 4], left_out, tail[-(longest // 4) :])


def _with_gap(head: str, left_out: int, tail: str) -> str:
    return f"{head} … ({left_out} characters left out) … {tail}"
