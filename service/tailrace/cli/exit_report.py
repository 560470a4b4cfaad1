"""The last line of a daemon that logs JSON: why it ends, and whether another start may help.

Kubernetes shows it as the container's termination message, of which it keeps the last 2,048 bytes
(https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/), so the
line stays below that.
"""

from __future__ import annotations

import json

import structlog

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

LONGEST = 1700
"""Bytes of the reason as JSON; the rest of the line has the rest."""


def log(error: Exception) -> int:
    """Logs why the process ends, and returns its exit code."""
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


def _may_pass(error: Exception) -> bool:
    """Whether another start may go better without anybody's help."""
    if isinstance(error, StartRefused):
        return error.may_pass
    if isinstance(error, CheckpointCorrupt | CheckpointFenced):
        return False
    # What is no error of ours nobody foresaw: it may be gone with the process.
    passing = DriverError | CheckpointError | DeadLetterError
    return isinstance(error, passing) or not isinstance(error, TailraceError)


def _problems(error: ConfigurationError) -> str:
    """As many problems as the line has room for, and how many more there are."""
    head = f"{error.source}: " if error.source else ""
    problems = [" ".join(str(problem).split()) for problem in error.problems]
    for told in range(len(problems), 0, -1):
        more = len(problems) - told
        tail = f"; and {more} more, which tailrace check tells" if more else ""
        text = head + "; ".join(problems[:told]) + tail
        if _fits(text):
            return text
    return _shortened(text)


def _shortened(text: str) -> str:
    if _fits(text):
        return text
    while not _fits(text + "…"):
        text = text[: len(text) * 9 // 10]
    return text + "…"


def _fits(text: str) -> bool:
    return len(json.dumps(text)) <= LONGEST
