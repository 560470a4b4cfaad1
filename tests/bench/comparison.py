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
    contender = row.contender
    replies = max(round(contender.replies * scale * 1000 / source.reply_events), 2)
    warm = max(round(_WARM_REPLIES * 1000 / source.reply_events), 1)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        client = contender.start(source.uri, Path(directory))
        try:
            source.order("await 1")
            source.serve(warm)
            row.spans.append(client.handle(source, replies, contender.quiet_seconds))
            row.peaks_mb.append(client.peak_mb)
            sent = source.serve(0)
            handled = client.handled()
        finally:
            client.kill()
        source.order("await 0")
    if handled != sent:
        raise RuntimeError(f"{contender.label}: handled {handled} of {sent} events")
