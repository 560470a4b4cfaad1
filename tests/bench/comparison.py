"""Runs contenders in turns, A B C A B C, so that other load on the machine affects all of them."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.contenders import Contender
from tests.bench.processes import Client, Source, Span

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
    with _warm(source, contender) as client:
        span = _span(client, source, contender, scale)
        return span, client.peak_mb, source.serve(0), client.handled()


def neighbours(
    pair: Sequence[Source], contender: Contender, turns: int, scale: float
) -> Iterator[float]:
    """How many times as much an event of the second source costs as one of the first, a few times.

    Both processes live at the same time and work in short turns: whatever else runs on the machine
    makes both of them dearer by the same factor.
    """
    with ExitStack() as stack:
        clients = [stack.enter_context(_warm(source, contender)) for source in pair]
        for _ in range(turns):
            one, other = (
                _span(client, source, contender, scale / turns).cpu_per_million
                for client, source in zip(clients, pair, strict=True)
            )
            yield other / one
        for client, source in zip(clients, pair, strict=True):
            if (handled := client.handled()) != (sent := source.serve(0)):
                raise RuntimeError(f"{contender.label}: handled {handled} of {sent} events")


@contextmanager
def _warm(source: Source, contender: Contender) -> Iterator[Client]:
    """A process of the contender that has handled some replies; killed at the end of the block."""
    warm = max(round(_WARM_REPLIES * 1000 / source.reply_events), 1)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        client = contender.start(source.uri, Path(directory))
        try:
            source.order("await 1")
            source.serve(warm)
            yield client
        finally:
            client.kill()
            source.order("await 0")


def _span(client: Client, source: Source, contender: Contender, scale: float) -> Span:
    replies = max(round(contender.replies * scale * 1000 / source.reply_events), 2)
    return client.handle(source, replies, contender.quiet_seconds)
