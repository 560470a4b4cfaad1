"""How far a handler is behind in whatever state: a silence never counts as freshness.

An idle handler is current because the stream's empty replies tell the time up to which there is no
change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.engine.position.cluster_time import later
from tailrace.engine.status.lag import lag
from tailrace.engine.status.lags import lags

if TYPE_CHECKING:
    from tailrace.engine.status.status import Status


def behind(status: Status, handler: str) -> float | None:
    """Seconds from what a handler of this course has handled to the server's time.

    Where nothing is read, from what it has by the checkpoint. ``None`` if neither is known.
    """
    if (handled := lags(status, handler).get("handled")) is not None:
        return handled
    saved = status.saved(handler)
    reached = saved.position.cluster_time if saved is not None else status.committed_time
    return lag(later(status.stream.set_time, status.clock.now()), reached)


def breached(status: Status, handler: str) -> bool | None:
    """Whether a handler of this course is further behind than ``max_lag`` of its route; ``None``
    without one."""
    return status.recorders[handler].freshness.breached(behind(status, handler))


def freshness_document(status: Status, handler: str) -> dict[str, Any] | None:
    """The same for ``/status``: JSON types; ``None`` without a ``max_lag``."""
    of = status.recorders[handler].freshness
    if of.max_lag is None:
        return None
    age = of.age(behind(status, handler))
    return {
        "max_lag_seconds": of.max_lag,
        "behind_seconds": round(age, 1),
        "breached": age > of.max_lag,
    }
