"""How long an event takes from the server's socket to the handler, on a stream that is idle."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench.contenders import Contender
from tests.bench.processes import Source, until_quiet

_BETWEEN_MS = 5
_WARM_TICKS = 20

MOTOR = Contender("motor", "Motor `watch()`", 0, "motor", "note_delay")
PYMONGO = Contender("pymongo", "PyMongo asyncio `watch()`", 0, "pymongo", "note_delay")
_HANDLER = {"type": "python", "target": "tests.bench.targets:note_delay"}
TAILRACE = Contender("tailrace", "Tailrace", 0, handler=_HANDLER)
ALL = (MOTOR, PYMONGO, TAILRACE)


def delays(source: Source, runs: int, ticks: int) -> list[dict[str, Any]]:
    """Each contender by turns: the medians of the runs, for JSON."""
    found: dict[str, list[list[float]]] = {each.name: [] for each in ALL}
    for _ in range(runs):
        for each in ALL:
            found[each.name].append(quantiles(_run(source, each, ticks), n=100))
    return [
        {
            "name": each.name,
            "label": each.label,
            "p50_ms": median(percentiles[49] for percentiles in found[each.name]),
            "p99_ms": median(percentiles[98] for percentiles in found[each.name]),
        }
        for each in ALL
    ]


def _run(source: Source, contender: Contender, ticks: int) -> Sequence[float]:
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        path = Path(directory) / "delays"
        client = contender.start(source.uri, Path(directory), BENCH_DELAYS=str(path))
        try:
            source.order("await 1")
            until_quiet(client)
            source.order(f"tick {_BETWEEN_MS} {_WARM_TICKS + ticks}")
            # Looking meanwhile whether it is quiet would take the processor's memory from it.
            time.sleep(_BETWEEN_MS * (_WARM_TICKS + ticks) / 1000)
            until_quiet(client)
        finally:
            client.kill()
        source.order("await 0")
        noted = [int(line) / 1e6 for line in path.read_text().split()]
    if len(noted) != _WARM_TICKS + ticks:
        raise RuntimeError(f"{contender.label}: {len(noted)} of {_WARM_TICKS + ticks} events")
    return noted[_WARM_TICKS:]
