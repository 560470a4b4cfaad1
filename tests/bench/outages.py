"""What a handler costs another one: one that is away, and one that catches up, on mongod.

``python -m tests.bench.outages [--quick] [--seconds 600]``. First three services read the same
changes from the oplog, in turns: one with one handler; one whose second handler is away; and one
whose handler begins at an old position beside another one, so that it reads a stream of its own.
Then two of them, with and without a handler that is away, follow the same writes side by side.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bson import ObjectId

from tests.bench import report, stock
from tests.bench.contenders import Contender, Service, Stream
from tests.bench.processes import Client
from tests.bench.real_server import DATABASE, Bench, Cost, insert, next_second
from tests.daemon import until
from tests.mongod import ReplicaSet

EVENTS = 100_000
DOCUMENT_BYTES = 1200
WRITES_PER_SECOND = 1000
BUDGET_MB = 16

LEAST_SPEED = {"beside": 0.95, "late": 0.9}
"""Of a handler that is alone."""
MOST_MB = BUDGET_MB + 80
MOST_STALL_SECONDS = 1.0

_NAME = "outages"
_LOOK_SECONDS = 0.25
_NOTHING: Mapping[str, Any] = {"type": "python", "target": "tests.bench.targets:ignore"}
_AWAY: Mapping[str, Any] = {"type": "python", "target": "tests.bench.targets:away"}
_NOTED: Mapping[str, Any] = {"type": "python", "target": "tests.bench.targets:note_inserts"}
_NOW = Stream(_NAME, None)
_DELIVERY = {"delivery": {"max_in_flight_bytes": BUDGET_MB * 2**20}}


@dataclass(frozen=True, slots=True)
class Late(Contender):
    """Its handler begins where the stream does, beside another one that begins now."""

    def start(self, uri: str, directory: Path, stream: Stream = _NOW, **environment: str) -> Client:
        assert stream.start_seconds is not None
        past = datetime.fromtimestamp(stream.start_seconds, UTC).isoformat()
        routes = [
            {"scope": _NAME, "handlers": ["it0"], "start_at": past},
            {"scope": _NAME, "handlers": ["other"]},
        ]
        return Service(
            uri,
            directory,
            self.handler if not isinstance(self.handler, str) else {},
            scopes=[replace(stream, start_seconds=None).scope()],
            sections={**self.sections, "handlers": {"other": _NOTHING}, "routes": routes},
        )


def _beside(handler: Mapping[str, Any]) -> Mapping[str, Any]:
    routes = [{"scope": _NAME, "handlers": ["it0", "away"]}]
    return {**_DELIVERY, "handlers": {"away": handler}, "routes": routes}


ALONE = Contender("alone", "one handler", 0, handler=_NOTHING, sections=_DELIVERY)
BESIDE = replace(
    ALONE, name="beside", label="the same, beside one that is away", sections=_beside(_AWAY)
)
LATE = Late("late", "one that begins at an old position", 0, handler=_NOTHING, sections=_DELIVERY)
ALL = (ALONE, BESIDE, LATE)


def backlogs(server: ReplicaSet, runs: int, events: int) -> list[dict[str, Any]]:
    """Runs all contenders in turns on the same changes; the medians, for JSON."""
    with server.client() as client:
        client[DATABASE].create_collection(_NAME)
        start = next_second()
        insert(client[DATABASE], _NAME, events, DOCUMENT_BYTES)
    bench, stream = Bench(server), Stream(_NAME, None, start)
    costs: dict[str, list[Cost]] = {each.name: [] for each in ALL}
    for _ in range(runs):
        idle = bench.idle()
        for each in ALL:
            costs[each.name].append(bench.run(each, stream, events, idle))
    alone = median(cost.client_cpu_seconds for cost in costs["alone"])
    return [
        {
            "name": each.name,
            "label": each.label,
            "client_us": median(c.client_cpu_seconds / events * 1e6 for c in costs[each.name]),
            "speed": alone / median(c.client_cpu_seconds for c in costs[each.name]),
            "peak_rss_mb": max(c.client_peak_mb for c in costs[each.name]),
        }
        for each in ALL
    ]


def side_by_side(server: ReplicaSet, seconds: float) -> list[dict[str, Any]]:
    """Both follow the same writes for this time, for JSON."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory, ExitStack() as end:
        services: list[tuple[Contender, Client, Path]] = []
        for each in (ALONE, BESIDE):
            of, noted = replace(each, handler=_NOTED), Path(directory) / f"{each.name} delays"
            noted.touch()
            place = Path(directory) / each.name
            client = of.start(server.uri, place, _NOW, BENCH_DELAYS=str(noted))
            end.callback(client.kill)
            services.append((each, client, noted))
        with _writer(server):
            until(lambda: all(path.stat().st_size for *_, path in services), "the first change")
            began = [client.cpu_seconds for _, client, _ in services]
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                time.sleep(_LOOK_SECONDS)
                for _, client, _ in services:
                    client.check()
            used = [c.cpu_seconds - cpu for (_, c, _), cpu in zip(services, began, strict=True)]
        for (each, client, path), cpu in zip(services, used, strict=True):
            delays = [int(line.split()[1]) / 1e6 for line in path.read_text().splitlines()]
            found.append(
                {
                    "name": each.name,
                    "label": each.label,
                    "events": len(delays),
                    "client_us": cpu / len(delays) * 1e6,
                    "speed": used[0] / cpu,
                    "p99_ms": quantiles(delays, n=100)[98],
                    "most_ms": max(delays),
                    "peak_rss_mb": client.peak_mb,
                }
            )
    return found


@contextmanager
def _writer(server: ReplicaSet) -> Iterator[None]:
    """Inserts at a steady rate, twenty documents at a time."""
    stop = threading.Event()

    def write() -> None:
        with server.client() as client:
            collection = client[DATABASE][_NAME]
            template = stock.document(ObjectId(), 0, DOCUMENT_BYTES - 16)
            due = time.monotonic()
            while not stop.wait(max(due - time.monotonic(), 0)):
                due += 20 / WRITES_PER_SECOND
                sent = time.monotonic_ns()
                documents = [{**template, "_id": ObjectId(), "sentAt": sent} for _ in range(20)]
                collection.insert_many(documents)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def missed(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What does not reach its target."""
    found = []
    for name, rows in results.items():
        for row in rows:
            least = LEAST_SPEED.get(row["name"], 0.0)
            if row["speed"] < least:
                found.append(f"{name}, {row['label']}: {row['speed']:.2f} of the speed alone")
            if row["peak_rss_mb"] > MOST_MB:
                found.append(f"{name}, {row['label']}: {row['peak_rss_mb']:.0f} MB")
            if row.get("most_ms", 0.0) > MOST_STALL_SECONDS * 1000:
                found.append(f"{name}, {row['label']}: a change took {row['most_ms']:.0f} ms")
    return found


def text(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """The results as Markdown."""
    tables = []
    for rows in results.values():
        lines = [
            [
                row["label"],
                f"{row['client_us']:.2f} µs",
                f"{row['speed']:.2f}",
                *(f"{row[each]:.0f} ms" for each in ("p99_ms", "most_ms") if each in row),
                f"{row['peak_rss_mb']:.0f} MB",
            ]
            for row in rows
        ]
        delays = ["p99", "longest"] if "p99_ms" in rows[0] else []
        heads = ["", "CPU of a change", "speed, of that alone", *delays, "peak RSS"]
        tables.append(report.markdown(heads, lines))
    return "\n\n".join(tables)


def main() -> None:
    """Measures and prints; ends with 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.outages")
    parser.add_argument("--quick", action="store_true", help="one short run")
    parser.add_argument("--runs", type=int, default=5, help="of each, by turns")
    parser.add_argument("--seconds", type=float, default=60, help="of the writes")
    options = parser.parse_args()
    runs, events, seconds = options.runs, EVENTS, options.seconds
    if options.quick:
        runs, events, seconds = 1, EVENTS // 10, 10
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory))
        try:
            results = {"backlog": backlogs(server, runs, events)}
            print(text(results), flush=True)
            results["writes"] = side_by_side(server, seconds)
        finally:
            server.stop()
    print("\n" + text({"writes": results["writes"]}))
    if problems := missed(results):
        raise SystemExit("missed: " + "; ".join(problems))


if __name__ == "__main__":
    main()
