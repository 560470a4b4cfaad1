"""Reports why a process ends: a message on standard error, or the last log line of a daemon.

Kubernetes shows the last 2,048 bytes of the log as the container's termination message
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/), so the
line stays below that.
"""

import json
import sys

from tailrace.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointFenced,
    ConfigurationError,
    DeadLetterError,
    DriverError,
    StartRefused,
    TailraceError,
    describe,
)
from tailrace.observe.terminal_text import Colour, paint

_USAGE = (400, 401, 403, 404, 413, 422)
"""The daemon's answers to a wrong request (:class:`tailrace.control.outcome.ActionRefused`)."""

LONGEST = 1700
"""The largest reason, in bytes of JSON; the other keys of the line need the rest."""


def log(error: Exception) -> int:
    """Logs why the process ends, and returns its exit code."""
    import structlog  # here: it takes long, and most commands log nothing

    logger = structlog.get_logger().bind(restart_helps=_may_pass(error))
    if isinstance(error, ConfigurationError):
        logger.error("service.refused", reason=_problems(error), exit_code=2)
        return 2
    if isinstance(error, TailraceError):
        event = "service.refused" if isinstance(error, StartRefused) else "service.failed"
        logger.error(event, reason=_shortened(describe(error)), exit_code=1)
        return 1
    logger.critical("service.crashed", exc_info=error, exit_code=1)
    return 1


def print_error(error: Exception) -> int:
    """Prints why a command failed, each problem on its own line; returns the exit code."""
    ours = paint("tailrace:", Colour.RED, sys.stderr)
    if not isinstance(error, ConfigurationError):
        print(f"{ours} {describe(error)}", file=sys.stderr)
        return 2 if getattr(error, "status", 1) in _USAGE else 1
    head, problems = f"{error.source}: " if error.source else "", error.problems
    lines = "".join(f"\n  {problem}" for problem in problems)
    message = str(problems[0]) if len(problems) == 1 else f"{len(problems)} problems{lines}"
    print(f"{ours} {head}{message}", file=sys.stderr)
    return 2


def _may_pass(error: Exception) -> bool:
    """Whether another start may succeed without intervention."""
    if isinstance(error, StartRefused):
        return error.may_pass
    if isinstance(error, CheckpointCorrupt | CheckpointFenced):
        return False
    # An error that is not ours is a defect. A restart may help.
    passing = DriverError | CheckpointError | DeadLetterError
    return isinstance(error, passing) or not isinstance(error, TailraceError)


def _problems(error: ConfigurationError) -> str:
    head = f"{error.source}: " if error.source else ""
    if len(error.problems) > 1:
        head += f"{len(error.problems)} problems: "
    return _shortened(head + "; ".join(" ".join(str(each).split()) for each in error.problems))


def _shortened(text: str) -> str:
    if len(json.dumps(text)) <= LONGEST:
        return text
    while len(json.dumps(text + "…")) > LONGEST:
        text = text[: len(text) * 9 // 10]
    return text + "…"
