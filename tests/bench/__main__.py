"""``make bench``: all benchmarks in one run. See README.md in this directory."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import ConfigurationError
from tests.bench import contenders, latency, real_server, report
from tests.bench.comparison import compare
from tests.bench.contenders import Contender
from tests.bench.processes import Source
from tests.bench.stock import Kind

_DIRECTORY = Path(__file__).parent / "results"
_SIXTEEN_MB = 0

STANDARD = (320, 1000)
"""The size of a document in bytes (an event then averages 600), and the events of a reply."""
_EVERYWHERE = (
    contenders.MOTOR,
    contenders.PYMONGO,
    contenders.EVENT,
    contenders.DOCUMENT,
    contenders.EVENTS,
    contenders.RAW,
    contenders.RELAXED,
    contenders.PARQUET,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """Events other than the standard ones. ``events`` is the number in a reply."""

    document_bytes: int
    events: int
    kind: Kind = "object_ids"


WORKLOADS = {
    "Numbers as `_id`": Workload(*STANDARD, "numbers"),
    "Texts as `_id`": Workload(*STANDARD, "texts"),
    "Keys of other types, shard keys, transactions": Workload(*STANDARD, "various"),
    **{
        f"Documents of {document}, replies of {reply}": Workload(document_bytes, events)
        for document, document_bytes in (("200 B", 200), ("600 B", 600), ("10 kB", 10_000))
        for reply, events in (("100", 100), ("1,000", 1000), ("16 MB", _SIXTEEN_MB))
    },
}


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--quick", action="store_true", help="one short run of each")
    parser.add_argument("--runs", type=int, default=5, help="of each contender, by turns")
    parser.add_argument("--scale", type=float, default=1.0, help="length of a run")
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--standard", action="store_true", help="the first two tables only")
    some.add_argument("--mongod", action="store_true", help="the tables on mongod only")
    parser.add_argument("--output", type=Path, default=_DIRECTORY, help="where the files go")
    options = parser.parse_args()
    runs, scale = (1, 0.1) if options.quick else (options.runs, options.scale)
    results: dict[str, Any] = {"machine": report.machine()}
    print(report.machine())
    if not options.mongod:
        source = Source(*STANDARD)
        try:
            few = options.quick or options.standard
            results |= _measure(source, runs, scale, {} if few else WORKLOADS)
        finally:
            source.close()
    if not options.standard:
        results["mongod"] = _on_mongod(
            real_server.BASIC if options.quick else real_server.ALL, runs, scale
        )
    report.write(options.output, results)
    print(f"\nThe results are in {options.output}.")


def _on_mongod(chosen: Sequence[Contender], runs: int, scale: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    print("\n## On mongod", flush=True)
    events = round(real_server.EVENTS * scale)
    try:
        for name, rows in real_server.measure(chosen, runs, events, real_server.WORKLOADS):
            found[name] = rows
            print(f"\n### {name}\n\n{report.server_table(rows)}", flush=True)
    except ConfigurationError as error:
        print(f"\nnot measured: {error}", flush=True)
    return found


def _measure(
    source: Source, runs: int, scale: float, workloads: Mapping[str, Workload]
) -> dict[str, Any]:
    bounds = {each.name: each.bounds for each in contenders.ALL}
    results: dict[str, Any] = {"workloads": {}}
    print("\n## Events of 600 B, replies of 1,000\n", flush=True)
    rows = [row.document() for row in compare(source, contenders.ALL, runs, scale)]
    results["standard"] = rows
    print(report.table(rows, bounds), "\n\n## Latency, idle stream\n", sep="", flush=True)
    results["latency"] = latency.delays(source, runs, round(1000 * scale))
    print(report.delays_table(results["latency"]), flush=True)
    for name, work in workloads.items():
        source.reload(work.document_bytes, work.events, work.kind)
        share = min(200 / work.document_bytes, 1.0) * scale / 3
        rows = [row.document() for row in compare(source, _EVERYWHERE, runs, share)]
        results["workloads"][name] = rows
        print(f"\n## {name}\n\n{report.table(rows)}", flush=True)
    return results


if __name__ == "__main__":
    main()
