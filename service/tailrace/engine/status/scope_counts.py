"""What is counted of a scope since the start."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ScopeCounts:
    """Of all streams of a scope: the shared one, and those of handlers on their own and of replays.

    ``events``: changes read. ``rows``: documents of snapshots read, which are no changes.
    ``restarts``: of runs and streams. ``resumes``: of streams, by reason.
    """

    events: int = 0
    rows: int = 0
    restarts: int = 0
    resumes: Counter[str] = field(default_factory=Counter)
