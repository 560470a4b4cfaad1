"""What the command costs as a process of its own: a cold start, and a pipeline that keeps running.

See ``tests.pipeline.bench``.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from tests.pipeline import worker_daemon
from tests.pipeline.cpu import cpu_seconds
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing

COLLECTIONS = [f"c{at}" for at in range(10)]
CHANGES = 100
"""Changes a second, spread over the collections."""

SEGMENT_SECONDS = 5
"""The default of the ``parquet`` handler."""

DOCUMENTS = 1000
"""Of each collection before the changes."""


def cold(directory: Path, documents: int) -> dict[str, float]:
    """The first tables of three collections that a snapshot has read, from the command's start."""
    landing, stream = Landing(directory / "lake"), Stream()
    names = [f"c{at}" for at in range(3)]
    done = dict.fromkeys(names, "done")
    for begin in range(0, documents, 50_000):
        rows = [
            stream.read(at, names[at % 3], n=at, text="x" * 420)
            for at in range(begin, min(documents, begin + 50_000))
        ]
        landing.land(rows)
    landing.land(stream.snapshot(more=done))
    began = time.perf_counter()
    with _command(directory, "--config", _configuration(directory), "--once") as process:
        cpu = _until_it_ends(process)
    return {"seconds": round(time.perf_counter() - began, 1), "cpu_seconds": round(cpu, 1)}


def following(directory: Path, warm: int, seconds: int) -> dict[str, float]:
    """Freshness, cost and idle cost of a pipeline that keeps running, by its defaults."""
    landing, stream = Landing(directory / "lake"), Stream()
    landing.land([stream.insert(at, name) for name in COLLECTIONS for at in range(DOCUMENTS)])
    with _command(directory, "--config", _configuration(directory)) as process:
        _wait_for(directory, landing.identity, 0)
        _fresh(directory, landing, stream, warm)
        before = cpu_seconds(process.pid)
        delays, lasted = _fresh(directory, landing, stream, seconds)
        share = (cpu_seconds(process.pid) - before) / lasted
        _wait_for(directory, landing.identity, landing.last["orders"][0])
        time.sleep(2 * SEGMENT_SECONDS)
        before = cpu_seconds(process.pid)
        time.sleep(seconds)
        idle = (cpu_seconds(process.pid) - before) / seconds
    return {
        "collections": len(COLLECTIONS),
        "changes_a_second": CHANGES,
        "longest_seconds": round(max(delays), 1),
        "median_seconds": round(statistics.median(delays), 1),
        "share_of_a_core": round(share, 3),
        "idle_share_of_a_core": round(idle, 4),
    }


def _fresh(
    directory: Path, landing: Landing, stream: Stream, seconds: int
) -> tuple[list[float], float]:
    """Lands changes for some time. Returns how long each segment took to be in every table."""
    began, number = time.monotonic(), 0
    landed: dict[int, float] = {}
    delays: list[float] = []
    while (elapsed := time.monotonic() - began) < seconds:
        if elapsed >= number * SEGMENT_SECONDS:
            changes = range(CHANGES * SEGMENT_SECONDS)
            landing.land([_change(stream, number * len(changes) + at) for at in changes])
            landed[landing.last["orders"][0]] = time.monotonic()
            number += 1
        through = _through(directory, landing.identity)
        delays += [time.monotonic() - landed.pop(at) for at in sorted(landed) if at <= through]
        time.sleep(0.5)
    return delays, time.monotonic() - began


def _change(stream: Stream, number: int) -> dict[str, Any]:
    name = COLLECTIONS[number % len(COLLECTIONS)]
    return stream.replace(number * 7 % DOCUMENTS, name, n=number, text="x" * 420)


def _through(directory: Path, lake: str) -> int:
    """The last segment that is in ``current`` of every collection."""
    found = []
    for name in COLLECTIONS:
        path = directory / "tables" / "current" / f"shop.{name}"
        if not (path / "_delta_log").exists():
            return -1
        found.append(DeltaTable(path).transaction_version(f"tailrace:{lake}:orders"))
    return min(-1 if each is None else each for each in found)


def _wait_for(directory: Path, lake: str, segment: int) -> None:
    while _through(directory, lake) < segment:
        time.sleep(1)


def _configuration(directory: Path) -> str:
    path = directory / "config.yaml"
    document = {
        "scopes": [{"name": "orders"}],
        "handlers": {"log": {"type": "log"}},
        "routes": [{"scope": "orders", "handlers": ["log"]}],
        "pipeline": {"master": "local[2]", "http": {"port": 0}, "spark": worker_daemon.SETTING},
    }
    path.write_text(json.dumps(document))
    return str(path)


@contextmanager
def _command(directory: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    places: Sequence[str] = ["--lake", f"{directory}/lake", "--tables", f"{directory}/tables"]
    command = [sys.executable, "-m", "tailrace", "pipeline", *places, *options]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _until_it_ends(process: subprocess.Popen[bytes]) -> float:
    """The CPU seconds until shortly before a process ends."""
    cpu = 0.0
    while process.poll() is None:
        cpu = max(cpu, cpu_seconds(process.pid))
        time.sleep(0.05)
    return cpu
