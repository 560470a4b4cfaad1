"""What a verification costs the daemon, with PostgreSQL: CPU microseconds for each document.

``python -m tests.bench.verify [--quick]``. The documents are copied first, and then compared three
times, each time after a plain loop over them. Nothing is written meanwhile. The bound that counts
is CPU time; seconds depend on other load.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.daemon import Daemon, until
from tests.destinations.postgresql import serve
from tests.machine import free_port
from tests.mongod import ReplicaSet
from tests.verifying import verified

DOCUMENTS = 200_000
QUICK_DOCUMENTS = 20_000
PAD_BYTES = 600
MOST_US = 25.0
"""The goal for a document of about 700 B."""
_DATABASE = "bench"
_PART = 5000
_COPY_SECONDS = 600.0


def cpu_seconds(run: Daemon) -> float:
    """User and system time of the daemon."""
    assert run.process is not None
    fields = Path(f"/proc/{run.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(run: Daemon) -> float:
    """The most memory that the daemon has had."""
    assert run.process is not None
    lines = Path(f"/proc/{run.process.pid}/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def insert(server: ReplicaSet, documents: int) -> None:
    """Documents of about 700 B."""
    with server.client() as client:
        for first in range(0, documents, _PART):
            client[_DATABASE].orders.insert_many(
                {"_id": number, "name": "a customer", "tags": ["a", "b"], "pad": "x" * PAD_BYTES}
                for number in range(first, min(first + _PART, documents))
            )


def find_us(server: ReplicaSet, documents: int) -> float:
    """What a plain loop over the documents costs, for a comparison."""
    with server.client() as client:
        began = time.process_time()
        for _ in client[_DATABASE].orders.find():
            pass
        return (time.process_time() - began) / documents * 1e6


def measure(documents: int) -> list[dict[str, float]]:
    """The cost of each verification."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as directory, serve() as made:
        server = ReplicaSet(Path(directory) / "mongod")
        run = Daemon(Path(directory) / "run", server.uri, **sections(made("bench").handler))
        try:
            insert(server, documents)
            run.start()
            until(lambda: is_copied(run), "the copy", _COPY_SECONDS)
            run.stop()
            run.start()  # without what the snapshot took
            return [{"find": find_us(server, documents), **_measured(run)} for _ in range(3)]
        finally:
            if run.process is not None and run.process.poll() is None:
                run.kill()
            server.stop()


def sections(handler: Mapping[str, Any], full_document: str = "lookup") -> dict[str, Any]:
    """The configuration: a snapshot of ``orders``, and then its changes."""
    scope = {"name": "orders", "database": _DATABASE, "collection": "orders"}
    return {
        "http": {"port": free_port()},
        "scopes": [{**scope, "full_document": full_document, "snapshot": "initial"}],
        "handlers": {"copy": {**handler, "batch_size": 1000}},
        "routes": [{"scope": "orders", "handlers": ["copy"]}],
    }


def is_copied(run: Daemon) -> bool:
    """Whether the snapshot is over."""
    snapshot = run.status()["snapshot"]
    return snapshot is not None and bool(snapshot["state"] == "done")


def _measured(run: Daemon) -> dict[str, float]:
    before, began, peak = cpu_seconds(run), time.monotonic(), peak_mb(run)
    found = verified(run)
    seconds, used = time.monotonic() - began, cpu_seconds(run) - before
    if found["equal"] != found["compared"] or not found["compared"]:
        raise RuntimeError(f"the copy differs: {found['keys'][:3]}")
    return {
        "documents": found["compared"],
        "us": used / found["compared"] * 1e6,
        "seconds": seconds,
        "more_mb": peak_mb(run) - peak,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help=f"{QUICK_DOCUMENTS:,} documents")
    documents = QUICK_DOCUMENTS if options.parse_args().quick else DOCUMENTS
    for each in measure(documents):
        print(
            f"{each['documents']:,.0f} documents: {each['us']:.1f} µs of CPU each "
            f"(goal {MOST_US:g}; PyMongo's find: {each['find']:.1f}), {each['seconds']:.1f} s, "
            f"{each['more_mb']:.0f} MB more than before"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
