"""The time from the server's socket to the handler for an event on an otherwise idle stream."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench.contenders import Contender
from tests.bench.processes import Source, until_quiet

_BETWEEN_MS = 5
WARM_TICKS = 20
"""The first events, which do not count."""

MOTOR = Contender("motor", "Motor `watch()`", 0, "motor", "note_delay")
PYMONGO = Contender("pymongo", "PyMongo asyncio `watch()`", 0, "pymongo", "note_delay")
_HANDLER = {"type": "python", "target": "tests.bench.targets:note_delay"}
TAILRACE = Contender("tailrace", "Tailrace", 0, handler=_HANDLER)
ALL = (MOTOR, PYMONGO, TAILRACE)


def delays(source: Source, runs: int, ticks: int) -> list[dict[str, Any]]:
    """Runs each contender in turns; the medians of the runs, for JSON."""
    return by_turns(ALL, runs, lambda each: _run(source, each, ticks))


def by_turns(
    contenders: Sequence[Contender], runs: int, run: Callable[[Contender], Sequence[float]]
) -> list[dict[str, Any]]:
    """The medians over the runs of the percentiles that ``run`` measured, in ms, for JSON."""
    found: dict[str, list[list[float]]] = {each.name: [] for each in contenders}
    for _ in range(runs):
        for each in contenders:
            found[each.name].append(quantiles(run(each), n=100))
    return [
        {
            "name": each.name,
            "label": each.label,
            "p50_ms": median(percentiles[49] for percentiles in found[each.name]),
            "p99_ms": median(percentiles[98] for percentiles in found[each.name]),
        }
        for each in contenders
    ]


def _run(source: Source, contender: Contender, ticks: int) -> Sequence[float]:
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        path = Path(directory) / "delays"
        client = contender.start(source.uri, Path(directory), BENCH_DELAYS=str(path))
        try:
            source.order("await 1")
            until_quiet(client)
            source.order(f"tick {_BETWEEN_MS} {WARM_TICKS + ticks}")
            # Checking for quiet meanwhile would evict the client's data from the processor's
            # caches.
            time.sleep(_BETWEEN_MS * (WARM_TICKS + ticks) / 1000)
            until_quiet(client)
        finally:
            client.kill()
        source.order("await 0")
        return read_noted(path, contender, ticks)


def read_noted(path: Path, contender: Contender, ticks: int) -> Sequence[float]:
    """The milliseconds that ``note_delay`` wrote, without the first ones.

    Raises ``RuntimeError`` if an event is missing.
    """
    noted = [int(line) / 1e6 for line in path.read_text().split()]
    if len(noted) != WARM_TICKS + ticks:
        raise RuntimeError(f"{contender.label}: {len(noted)} of {WARM_TICKS + ticks} events")
    return noted[WARM_TICKS:]
