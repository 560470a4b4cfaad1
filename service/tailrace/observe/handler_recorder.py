"""Counts and times the calls of one handler on one scope."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from tailrace.observe.freshness import Freshness
from tailrace.observe.latency import Latency

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""The upper bounds of the buckets of time histograms."""

_SHORTEST = SECONDS[0]


class HandlerRecorder:
    """Counts and times the calls of one handler on one scope, in plain integers.

    prometheus_client's histogram takes a lock for each observation, which costs more than some
    handlers.
    """

    def __init__(self) -> None:
        self.outcomes = {"ok": 0, "error": 0, "dead_letter": 0}
        self.retries = 0
        self.overdue = 0
        self.waiting: int | None = None
        """Unresolved dead letters in the store; ``None`` while unknown."""
        self.down_since: float | None = None
        """When the destination stopped answering (Unix time); ``None`` while it answers."""
        self.down_cause = ""
        """The error by which it was noticed."""
        self.call_since: float | None = None
        """When the longest call began, if it runs for long (Unix time); else ``None``."""
        self.call = ""
        """What that call is about: a document key, or what the handler is asked for."""
        self.failing: dict[str, tuple[int, str]] = {}
        """Of calls that are tried again, by the digest of their first event: the number of failed
        attempts, and the last error."""
        self.columns: Callable[[], Mapping[str, Sequence[str]]] | None = None
        """By table, the columns that the destination has made of fields."""
        self.latency = Latency()
        self.freshness = Freshness()
        self.counts = [0] * (len(SECONDS) + 1)
        self.seconds = 0.0

    def handled(self, seconds: float, events: int) -> None:
        """A call returned."""
        # Most calls fall into the first bucket, and the search costs more than such a call.
        self.counts[bisect_left(SECONDS, seconds) if seconds > _SHORTEST else 0] += 1
        self.seconds += seconds
        self.outcomes["ok"] += events

    def failed(self, seconds: float, events: int) -> None:
        """A call raised."""
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.seconds += seconds
        self.outcomes["error"] += events
