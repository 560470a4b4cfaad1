"""Runs contenders in turns, A B C A B C, so that other load on the machine affects all of them."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.contenders import Contender
from tests.bench.processes import Source, Span

_WARM_REPLIES = 5


@dataclass(slots=True)
class Row:
    """All runs of one contender on one workload."""

    contender: Contender
    spans: list[Span] = field(default_factory=list)
    peaks_mb: list[float] = field(default_factory=list)

    @property
    def cpu_per_million(self) -> float:
        """The median over the runs."""
        return median(span.cpu_per_million for span in self.spans)

    @property
    def peak_mb(self) -> float:
        """The largest value of the runs."""
        return max(self.peaks_mb)

    def document(self) -> dict[str, Any]:
        """The row for JSON."""
        return {
            "name": self.contender.name,
            "label": self.contender.label,
            "cpu_seconds_per_million": self.cpu_per_million,
            "events_per_second": median(span.events_per_second for span in self.spans),
            "peak_rss_mb": self.peak_mb,
            "runs": [asdict(span) for span in self.spans],
        }


def compare(
    source: Source, contenders: Sequence[Contender], runs: int, scale: float = 1.0
) -> list[Row]:
    """Runs each contender ``runs`` times; ``scale`` shortens every run.

    Raises ``RuntimeError`` if a contender has not handled exactly the events that it was sent.
    """
    rows = [Row(contender) for contender in contenders]
    for _ in range(runs):
        for row in rows:
            _run(source, row, scale)
    return rows


def _run(source: Source, row: Row, scale: float) -> None:
    """Makes one run. A process that came to rest before it had everything is measured once more:
    on a busy machine that need not be its fault."""
    for _ in range(2):
        span, peak_mb, sent, handled = _measured(source, row.contender, scale)
        if span.events and handled == sent:
            row.spans.append(span)
            row.peaks_mb.append(peak_mb)
            return
    raise RuntimeError(f"{row.contender.label}: handled {handled} of {sent} events")


def _measured(source: Source, contender: Contender, scale: float) -> tuple[Span, float, int, int]:
    """The span, the most memory in MB, and the events sent and handled, of one process."""
    replies = max(round(contender.replies * scale * 1000 / source.reply_events), 2)
    warm = max(round(_WARM_REPLIES * 1000 / source.reply_events), 1)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        client = contender.start(source.uri, Path(directory))
        try:
            source.order("await 1")
            source.serve(warm)
            span = client.handle(source, replies, contender.quiet_seconds)
            return span, client.peak_mb, source.serve(0), client.handled()
        finally:
            client.kill()
            source.order("await 0")
