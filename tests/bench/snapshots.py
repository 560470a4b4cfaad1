"""What a snapshot costs, and how it affects concurrent changes, on mongod.

``python -m tests.bench.snapshots [--quick]``. One member, pinned to the core that the clients do
not use. The copy is compared with the loop that people write: PyMongo's ``find_raw_batches``, which
decodes nothing. The server holds every getMore until both are idle.

Changes are measured beside a copy of the same collection, which is paused and resumed in turns. The
latency of a change lasts from just before its insert to its handler.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bson import ObjectId

from tailrace.observe.health_check import request
from tests.bench import report, stock
from tests.bench.contenders import Contender, Service, Stream
from tests.bench.real_server import DATABASE, Bench, Cost, insert, pinned
from tests.daemon import until
from tests.mongod import ReplicaSet

DOCUMENTS = 1_000_000
DOCUMENT_BYTES = 600
WRITES_PER_SECOND = 1000

_STREAM = Stream("copied", None)
_BARRIERS = 2
_WRITERS = 4
_TURN_SECONDS = 2.0
"""How long the copy is paused, or runs, before the next turn."""
_SETTLE_SECONDS = 0.3
"""The start of each turn, which is not measured."""

FIND = Contender("find", "PyMongo `find_raw_batches`, a loop that does nothing", 0, "find", "")
COPY = Contender(
    "copy",
    "Tailrace, `snapshot: initial`, handler of a sequence that takes the bytes",
    0,
    handler={"type": "python", "target": "tests.bench.targets:measure_each"},
    scope={"snapshot": "initial"},
)
PARALLEL = replace(
    COPY,
    name="parallel",
    label="Tailrace, the same, `parallel: 2`",
    scope={"snapshot": {"mode": "initial", "parallel": 2}},
)
ALL = (FIND, COPY, PARALLEL)


def copies(server: ReplicaSet, runs: int, documents: int) -> list[dict[str, Any]]:
    """Runs all contenders in turns; the medians of the runs, for JSON."""
    bench = Bench(server)
    costs: dict[str, list[Cost]] = {each.name: [] for each in ALL}
    for _ in range(runs):
        idle = bench.idle()
        for each in ALL:
            events = documents if each is FIND else documents + _BARRIERS
            costs[each.name].append(bench.run(each, _STREAM, events, idle))
    return [
        {
            "name": each.name,
            "label": each.label,
            "client_us": median(c.client_cpu_seconds / documents * 1e6 for c in costs[each.name]),
            "server_us": median(c.server_cpu_seconds / documents * 1e6 for c in costs[each.name]),
            "documents_per_second": median(documents / c.seconds for c in costs[each.name]),
            "peak_rss_mb": max(c.client_peak_mb for c in costs[each.name]),
        }
        for each in ALL
    ]


def beside_changes(server: ReplicaSet, turns: int) -> dict[str, Any]:
    """Changes with and without a copy beside them, ``turns`` turns each, for JSON."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        delays, waits = Path(directory) / "delays", Path(directory) / "waits"
        delays.touch()
        service = Service(
            server.uri,
            Path(directory),
            {"type": "python", "target": "tests.bench.targets:note_inserts"},
            scopes=[_STREAM.scope()],
            module="tests.bench.noted",
            BENCH_DELAYS=str(delays),
            BENCH_WAITS=str(waits),
        )
        try:
            with _writers(server):
                until(lambda: delays.stat().st_size, "the first change")
                time.sleep(_TURN_SECONDS)
                spans = list(_turns(service, turns))
                status = _status(service)
        finally:
            service.kill()
        noted = [tuple(map(int, line.split())) for line in delays.read_text().splitlines()]
        waited = [float(line) for line in waits.read_text().split()]
    if status["state"] != "reading":
        raise RuntimeError(f"the copy was at its end before the turns were: {status}")
    found: dict[bool, list[float]] = {False: [], True: []}
    for copying, begin, end in spans:
        found[copying] += [delay / 1e6 for sent, delay in noted if begin <= sent < end]
    seconds = turns * (_TURN_SECONDS - _SETTLE_SECONDS)
    return {
        "writes_per_second": len(found[True]) / seconds,
        "documents_per_second": status["documents"] / (turns * _TURN_SECONDS),
        "usual": _percentiles(found[False]),
        "beside": _percentiles(found[True]),
        "waits": _percentiles(waited),
    }


def _percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    parts = quantiles(milliseconds, n=100)
    return {"p50_ms": parts[49], "p90_ms": parts[89], "p99_ms": parts[98]}


def _turns(service: Service, turns: int) -> Iterator[tuple[bool, int, int]]:
    """Yields whether the copy runs, and from when to when (``monotonic_ns``)."""
    for number in range(turns):
        for copying in (False, True):
            if copying:
                _order(service, "resume" if number else "start")
            elif number:
                _order(service, "pause")
            time.sleep(_SETTLE_SECONDS)
            begin = time.monotonic_ns()
            time.sleep(_TURN_SECONDS - _SETTLE_SECONDS)
            yield copying, begin, time.monotonic_ns()


def _order(service: Service, action: str) -> None:
    path = f"/scopes/{_STREAM.collection}/snapshot?action={action}"
    status, answer = request("127.0.0.1", service.port, path, method="POST")
    if status not in (200, 202):
        raise RuntimeError(answer)


def _status(service: Service) -> dict[str, Any]:
    answer = request("127.0.0.1", service.port, "/status")[1]
    found: dict[str, Any] = json.loads(answer)["scopes"][_STREAM.collection]["snapshot"]
    return found


@contextmanager
def _writers(server: ReplicaSet) -> Iterator[None]:
    """Inserts at a steady rate from threads that wait for the server's answer."""
    stop = threading.Event()

    def write(number: int) -> None:
        with server.client() as client:
            collection = client[DATABASE][_STREAM.collection]
            template = stock.document(ObjectId(), 0, DOCUMENT_BYTES - len(b"?sentAt\0") - 8)
            due = time.monotonic() + number / WRITES_PER_SECOND
            while not stop.wait(max(due - time.monotonic(), 0)):
                due += _WRITERS / WRITES_PER_SECOND
                sent = {"_id": ObjectId(), "sentAt": time.monotonic_ns()}
                collection.insert_one({**template, **sent})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def measure(runs: int, documents: int, turns: int) -> dict[str, Any]:
    """Both benchmarks on one server; with no turns, only the copies.

    Raises :class:`tailrace.errors.ConfigurationError` if there is no mongod.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        server = ReplicaSet(Path(directory))
        try:
            with server.client() as client:
                insert(client[DATABASE], _STREAM.collection, documents, DOCUMENT_BYTES)
            pinned(server)
            found: dict[str, Any] = {"copies": copies(server, runs, documents)}
            return found | ({"changes": beside_changes(server, turns)} if turns else {})
        finally:
            server.stop()


def text(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows = [
        [
            row["label"],
            f"{row['client_us']:.2f} µs",
            f"{row['server_us']:.2f} µs",
            f"{row['documents_per_second']:,.0f}",
            f"{row['peak_rss_mb']:.0f} MB",
        ]
        for row in results["copies"]
    ]
    changes = results["changes"]
    delays = [
        [label, *(f"{each:.2f} ms" for each in changes[name].values())]
        for name, label in (
            ("usual", "a change, no copy"),
            ("beside", "a change beside the copy"),
            ("waits", "a chunk, until its moment"),
        )
    ]
    rates = "{writes_per_second:,.0f} changes/s, {documents_per_second:,.0f} documents/s"
    return "\n\n".join(
        [
            report.markdown(["", "client CPU", "server CPU", "documents/s", "peak RSS"], rows),
            report.markdown(["", "p50", "p90", "p99"], delays),
            rates.format(**changes),
        ]
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.snapshots")
    parser.add_argument("--quick", action="store_true", help="one short run")
    parser.add_argument("--runs", type=int, default=5, help="of each, by turns")
    options = parser.parse_args()
    runs, scale = (1, 0.1) if options.quick else (options.runs, 1.0)
    results = measure(runs, round(DOCUMENTS * scale), 4 * runs)
    print(text(results))


if __name__ == "__main__":
    main()
