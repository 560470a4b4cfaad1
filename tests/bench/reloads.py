"""What a reload of one of a hundred scopes does to the others: ``python -m tests.bench.reloads``.

A writer inserts on mongod, into the collections of the other scopes in turn. The latency is from
before an insert is sent until the handler is called. Inserts that are sent while a reload is asked
for and answered are compared with the rest, which are sent between reloads, in the same run.
"""

import argparse
import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.bench import report
from tests.bench.contenders import Service, Stream
from tests.daemon import until
from tests.mongod import ReplicaSet

SCOPES = 100
MOST_RATIO = 1.1
"""The target, for medians."""
BETWEEN, WITHIN, BEGIN = "between reloads", "in reloads", "in their first 100 ms"
_BEGIN_NS = 100_000_000
"""The configuration is read in this time."""
_EVERY_SECONDS = 0.005
_QUIET_SECONDS = 1.0
_HANDLER = {"type": "python", "target": "tests.bench.targets:note_inserts"}


class Writer:
    """Inserts into the collections in turn, in a thread, until :meth:`stop`."""

    def __init__(self, server: ReplicaSet, names: Sequence[str]) -> None:
        self.written = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server, names))
        self._thread.start()

    def _run(self, server: ReplicaSet, names: Sequence[str]) -> None:
        with server.client() as client:
            while not self._over.wait(_EVERY_SECONDS):
                collection = client.shop[names[self.written % len(names)]]
                collection.insert_one({"sentAt": time.monotonic_ns()})
                self.written += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def reload(running: Service, configuration: dict[str, Any], file: Path, number: int) -> None:
    """Changes one scope, and has it reloaded."""
    configuration["scopes"][0]["batch_size"] = 1000 + number
    file.write_text(json.dumps(configuration))
    url = f"http://127.0.0.1:{running.port}/reload"
    request = urllib.request.Request(url, b"{}", {"Tailrace-Change": "1"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        scopes: Mapping[str, Any] = json.load(reply)["scopes"]
    if [each["effect"] for each in scopes.values()].count("restarted") != 1:
        raise RuntimeError(f"not one scope was restarted: {scopes}")


def measure(rounds: int) -> tuple[dict[str, list[float]], float]:
    """The milliseconds of inserts, and the median of a reload's seconds."""
    names = [f"scope{number}" for number in range(SCOPES)]
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory:
        noted, file = Path(directory) / "delays", Path(directory) / "run" / "config.yaml"
        server = ReplicaSet(Path(directory) / "mongod")
        spans: list[tuple[int, int]] = []
        try:
            scopes = [Stream(name, full_document=None).scope() for name in names]
            running = Service(
                server.uri, file.parent, _HANDLER, scopes=scopes, BENCH_DELAYS=str(noted)
            )
            try:
                until(lambda: _is_ready(running), "the service")
                writer = Writer(server, names[1:])
                configuration = json.loads(file.read_text())
                try:
                    for number in range(rounds + 1):
                        time.sleep(_QUIET_SECONDS)
                        began = time.monotonic_ns()
                        reload(running, configuration, file, number)
                        spans.append((began, time.monotonic_ns()))
                finally:
                    writer.stop()
                until(lambda: len(noted.read_text().split()) == 2 * writer.written, "all events")
            finally:
                running.kill()
        finally:
            server.stop()
        lines = [line.split() for line in noted.read_text().splitlines()]
    sent = [(int(at), int(delay) / 1e6) for at, delay in lines if int(at) > spans[0][1]]
    parts: dict[str, list[float]] = {name: [] for name in (BETWEEN, WITHIN, BEGIN)}
    for at, ms in sent:
        since = [at - a for a, b in spans if a <= at <= b]
        parts[WITHIN if since else BETWEEN].append(ms)
        if since and since[0] < _BEGIN_NS:
            parts[BEGIN].append(ms)
    return parts, median((b - a) / 1e9 for a, b in spans[1:])


def _is_ready(running: Service) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/readyz", timeout=10):
            return True
    except OSError:
        return False


def main() -> int:
    """Prints the percentiles; returns 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reloads")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    print(report.machine())
    parts, seconds = measure(options.rounds)
    rows = []
    for name, ms in parts.items():
        found = quantiles(ms, n=100)
        rows.append((name, str(len(ms)), *(f"{found[at - 1]:.2f} ms" for at in (50, 90, 99))))
    print(report.markdown(["", "inserts", "p50", "p90", "p99"], rows))
    ratio = median(parts[WITHIN]) / median(parts[BETWEEN])
    print(f"\nA reload takes {seconds * 1000:.0f} ms. Ratio of the medians: {ratio:.2f}")
    return int(ratio > MOST_RATIO)


if __name__ == "__main__":
    raise SystemExit(main())
