"""From the start of the process to its first handled event, on mongod.

``python -m tests.bench.cold_start [--runs 9]``. The changes are there before each start. Exit code
1: the median is above two seconds.
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from tests.bench.processes import Observed
from tests.bench.real_server import next_second
from tests.checkout import IMPORTS
from tests.daemon import Daemon
from tests.mongod import ReplicaSet

MOST_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0


def measure(server: ReplicaSet, directory: Path, since: str) -> tuple[float, float]:
    """The seconds until the first event is in the file, and what they took of the CPU."""
    run = Daemon(directory, server.uri)
    run.configuration["scopes"][0]["start_at"] = since
    run.environ = {"PYTHONPATH": IMPORTS}  # Python itself, and no fork
    events = directory / "events.jsonl"
    began = time.perf_counter()
    run.start(ready=False)
    try:
        while not (events.exists() and events.stat().st_size):
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise RuntimeError(f"no event:\n{run.log}")
            time.sleep(0.002)
        seconds = time.perf_counter() - began
        assert run.process is not None
        return seconds, Observed(run.process.pid).cpu_seconds
    finally:
        run.kill()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cold_start", description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as name:
        server = ReplicaSet(Path(name) / "mongod")
        try:
            since = datetime.fromtimestamp(next_second(), UTC).isoformat()
            with server.client() as client:
                client.shop.orders.insert_many([{"n": n} for n in range(100)])
            results = [measure(server, Path(name) / str(number), since) for number in range(runs)]
        finally:
            server.stop()
    seconds, used = (median(values) for values in zip(*results, strict=True))
    print(f"{seconds:.2f} s to the first event, {used:.2f} s of CPU (medians of {runs})")
    return 0 if seconds <= MOST_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
