"""What the documents of updates cost server and client, on mongod.

``python -m tests.bench.lookups [--quick]``. One member, pinned to the core that the clients do not
use; the whole of Tailrace, with a handler that does nothing. Contenders run in turns, and each
ratio is within one run. The server holds every getMore until the client is idle.

Latency is that of single updates on an otherwise idle stream: from just before the update is sent
to the call of its handler.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from bson import ObjectId

from tests.bench import contenders, latency, report
from tests.bench.contenders import Contender, Stream
from tests.bench.processes import until_quiet
from tests.bench.real_server import DATABASE, Bench, Cost, Documents, insert, next_second
from tests.mongod import ReplicaSet

EVENTS = 100_000
DOCUMENT_BYTES = 500
TICKS = 400

_BLOCK, _TIMES = 100, 10
_BETWEEN_SECONDS = 0.005


def _asks(name: str, label: str, full_document: str | None) -> Contender:
    scope = {} if full_document is None else {"full_document": full_document}
    return replace(contenders.EVENT, name=name, label=label, scope=scope)


NONE = _asks("none", "no documents", None)
STORED = _asks("stored", "`required` (stored post-images)", "required")
SERVER = _asks("server", "`updateLookup`", "updateLookup")
OURS = _asks("lookup", "`lookup`", "lookup")
ALL = (NONE, STORED, SERVER, OURS)
DELAYED = tuple(
    replace(each, handler={"type": "python", "target": "tests.bench.targets:note_delay"})
    for each in (SERVER, OURS)
)


def _once(documents: Documents, name: str, events: int) -> None:
    documents[name].update_many({}, {"$set": {"status": "paid"}, "$inc": {"version": 1}})


def _repeatedly(documents: Documents, name: str, events: int) -> None:
    """About ``events`` updates (some thousands): each document ten times within a thousand."""
    for first in range(0, events // _TIMES, _BLOCK):
        block = {"$gte": ObjectId(f"{first:024x}"), "$lt": ObjectId(f"{first + _BLOCK:024x}")}
        for _ in range(_TIMES):
            documents[name].update_many({"_id": block}, {"$inc": {"version": 1}})


@dataclass(frozen=True, slots=True)
class Workload:
    """Updates in one collection, and how to read them. ``most`` bounds the server's CPU ratio."""

    label: str
    collection: str
    write: Callable[[Documents, str, int], None]
    most: float
    scope: Mapping[str, Any] = field(default_factory=dict)


_THOUSAND = {"batch_size": 1000}
WORKLOADS = (
    Workload("Replies of 1,000", "updates", _once, 0.6, _THOUSAND),
    Workload("Replies of 16 MB", "updates", _once, 0.45),
    Workload("Replies of 1,000, every document ten times", "hot", _repeatedly, 0.45, _THOUSAND),
)
MOST_CLIENT = MOST_DELAY = 1.5
"""The bounds on client CPU and on median latency, as multiples of ``updateLookup``."""


def write(documents: Documents, work: Workload, events: int) -> int:
    """Writes the updates; returns the time from which to read."""
    images = {"changeStreamPreAndPostImages": {"enabled": True}}
    documents.create_collection(work.collection, **images)
    insert(documents, work.collection, events, DOCUMENT_BYTES)
    start = next_second()
    work.write(documents, work.collection, events)
    return start


def costs(
    server: ReplicaSet, runs: int, events: int, workloads: Sequence[Workload] = WORKLOADS
) -> dict[str, list[dict[str, Any]]]:
    """Runs the contenders in turns on each workload; a row for each, by label, for JSON."""
    bench = Bench(server)
    starts: dict[str, int] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    for work in workloads:
        if work.collection not in starts:
            with server.client() as client:
                starts[work.collection] = write(client[DATABASE], work, events)
        stream = Stream(work.collection, None, starts[work.collection])
        taken: dict[str, list[Cost]] = {each.name: [] for each in ALL}
        for _ in range(runs):
            idle = bench.idle()
            for each in ALL:
                contender = replace(each, scope={**each.scope, **work.scope})
                taken[each.name].append(bench.run(contender, stream, events, idle))
        found[work.label] = [_row(each, taken, work) for each in ALL]
    return found


def _row(contender: Contender, taken: Mapping[str, list[Cost]], work: Workload) -> dict[str, Any]:
    mine, base = taken[contender.name], taken[SERVER.name]
    pairs = list(zip(mine, base, strict=True))
    return {
        "name": contender.name,
        "label": contender.label,
        "client_us": median(c.client_cpu_seconds / c.events * 1e6 for c in mine),
        "server_us": median(c.server_cpu_seconds / c.events * 1e6 for c in mine),
        "events_per_second": median(c.events / c.seconds for c in mine),
        "peak_rss_mb": max(c.client_peak_mb for c in mine),
        "of_client": median(c.client_cpu_seconds / b.client_cpu_seconds for c, b in pairs),
        "of_server": median(c.server_cpu_seconds / b.server_cpu_seconds for c, b in pairs),
        "most_server": work.most if contender is OURS else None,
    }


def delays(server: ReplicaSet, runs: int, ticks: int) -> list[dict[str, Any]]:
    """Runs both in turns; the medians of the runs, for JSON."""
    return latency.by_turns(DELAYED, runs, lambda each: _delays(server, each, ticks))


def _delays(server: ReplicaSet, contender: Contender, ticks: int) -> Sequence[float]:
    stream = Stream("ticks", None)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        path = Path(directory) / "delays"
        client = contender.start(server.uri, Path(directory), stream, BENCH_DELAYS=str(path))
        try:
            with server.client() as writer:
                collection = writer[DATABASE][stream.collection]
                collection.replace_one({"_id": 1}, {"text": "x" * DOCUMENT_BYTES}, upsert=True)
                until_quiet(client, quiet_seconds=2.0)
                for _ in range(latency.WARM_TICKS + ticks):
                    collection.update_one({"_id": 1}, {"$set": {"sentAt": time.monotonic_ns()}})
                    time.sleep(_BETWEEN_SECONDS)
            until_quiet(client)
        finally:
            client.kill()
        return latency.read_noted(path, contender, ticks)


def text(costs: Mapping[str, list[dict[str, Any]]]) -> str:
    """The results as Markdown, with a table for each workload."""
    of = "of `updateLookup`"
    heads = ["", "server CPU", of, "client CPU", of, "events/s", "peak RSS"]
    tables = []
    for label, rows in costs.items():
        cells = [
            [
                row["label"],
                f"{row['server_us']:.1f} µs",
                f"{row['of_server']:.2f}",
                f"{row['client_us']:.1f} µs",
                f"{row['of_client']:.2f}",
                f"{row['events_per_second']:,.0f}",
                f"{row['peak_rss_mb']:.0f} MB",
            ]
            for row in rows
        ]
        tables.append(f"### {label}\n\n{report.markdown(heads, cells)}")
    return "\n\n".join(tables)


def misses(
    costs: Mapping[str, list[dict[str, Any]]], delays: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The bounds that were exceeded."""
    found = []
    for label, rows in costs.items():
        ours = next(row for row in rows if row["name"] == OURS.name)
        for what, most in (("server", ours["most_server"]), ("client", MOST_CLIENT)):
            if ours[f"of_{what}"] > most:
                found.append(f"{label}: {ours[f'of_{what}']:.2f} of the {what}'s CPU, not {most}")
    base, own = (row["p50_ms"] for row in delays)
    if own > MOST_DELAY * base:
        found.append(f"a single update: {own / base:.2f} of the latency, not {MOST_DELAY}")
    return found


def main() -> int:
    """Measures on one server and prints; returns 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.lookups")
    parser.add_argument("--quick", action="store_true", help="one short run")
    parser.add_argument("--runs", type=int, default=5, help="of each, by turns")
    options = parser.parse_args()
    runs, scale = (1, 0.2) if options.quick else (options.runs, 1.0)
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory))
        try:
            of_updates = costs(server, runs, round(EVENTS * scale))
            print(text(of_updates), flush=True)
            of_single = delays(server, runs, round(TICKS * scale))
        finally:
            server.stop()
    print(f"\n### A single update\n\n{report.delays_table(of_single)}\n")
    missed = misses(of_updates, of_single)
    print(*missed, sep="\n")
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
