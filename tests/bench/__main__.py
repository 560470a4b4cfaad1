"""``make bench``: everything in one run. See README.md beside this file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import contenders, latency, report
from tests.bench.comparison import compare
from tests.bench.processes import Source

_DIRECTORY = Path(__file__).parent / "results"
_SIXTEEN_MB = 0

STANDARD = (320, 1000)
"""Bytes of a document, which make events of 600 on average, and events of a reply."""
WORKLOADS = {
    "Documents of 200 B, replies of 1,000": (200, 1000),
    "Documents of 200 B, replies of 100": (200, 100),
    "Documents of 200 B, replies of 16 MB": (200, _SIXTEEN_MB),
    "Documents of 600 B, replies of 1,000": (600, 1000),
    "Documents of 10 kB, replies of 100": (10_000, 100),
    "Documents of 10 kB, replies of 16 MB": (10_000, _SIXTEEN_MB),
}
_EVERYWHERE = (
    contenders.MOTOR,
    contenders.PYMONGO,
    contenders.EVENT,
    contenders.EVENTS,
    contenders.RAW,
    contenders.RELAXED,
)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    parser.add_argument("--runs", type=int, default=5, help="of each contender, by turns")
    parser.add_argument("--scale", type=float, default=1.0, help="length of a run")
    parser.add_argument("--standard", action="store_true", help="the first two tables only")
    parser.add_argument("--output", type=Path, default=_DIRECTORY, help="where the files go")
    options = parser.parse_args()
    runs, scale = (1, 0.1) if options.quick else (options.runs, options.scale)
    source = Source(*STANDARD)
    try:
        results = _measure(
            source, runs, scale, {} if options.quick or options.standard else WORKLOADS
        )
    finally:
        source.close()
    report.write(options.output, results)
    print(f"\n{options.output}: results.json, results.png")


def _measure(
    source: Source, runs: int, scale: float, workloads: Mapping[str, tuple[int, int]]
) -> dict[str, Any]:
    bounds = {each.name: each.bounds for each in contenders.ALL}
    results: dict[str, Any] = {"machine": report.machine(), "workloads": {}}
    print(f"{report.machine()}\n\n## Events of 600 B, replies of 1,000\n", flush=True)
    rows = [row.document() for row in compare(source, contenders.ALL, runs, scale)]
    results["standard"] = rows
    print(report.table(rows, bounds), "\n\n## Latency, idle stream\n", sep="", flush=True)
    waits = latency.delays(source, runs, round(1000 * scale))
    results["latency"] = [each.document() for each in waits]
    print(report.delays_table(results["latency"]), flush=True)
    for name, workload in workloads.items():
        source.reload(*workload)
        share = min(200 / workload[0], 1.0) * scale / 2
        rows = [row.document() for row in compare(source, _EVERYWHERE, min(runs, 3), share)]
        results["workloads"][name] = rows
        print(f"\n## {name}\n\n{report.table(rows, {})}", flush=True)
    return results


if __name__ == "__main__":
    main()
