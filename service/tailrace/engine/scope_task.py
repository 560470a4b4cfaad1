"""The task of one scope in the supervisor."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from tailrace.engine.watcher import Watcher

Begin = Callable[[], Awaitable[Watcher | None]]
"""Makes the watcher that follows a scope from now on; ``None`` if none is to follow it."""


@dataclass(eq=False, slots=True)
class ScopeTask:
    """The task of one scope: ``end`` drains its watcher, and ``begin`` makes the next one.

    ``changes``: from a change on, until the watcher that it makes is there.
    """

    end: Callable[[float], None] = lambda deadline: None
    deadline: float = math.inf
    begin: Begin | None = None
    changes: bool = False


GRACE_IS_OVER = "its shutdown.grace_seconds are over"


def log_not_drained(scope: str, reason: str) -> None:
    """Says why a watcher was cancelled before its scope was drained, while the process goes on."""
    structlog.get_logger().warning(
        "scope.not_drained",
        scope=scope,
        reason=reason,
        consequence="calls that had not ended were cancelled: their changes come again",
    )
