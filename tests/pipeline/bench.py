"""What the pipeline costs: ``make bench-pipeline``, or ``python -m tests.pipeline.bench --quick``.

Prints one JSON object a line: the start of Spark; loads of growing size with the seconds of each
stage and the driver's memory; one load in each form of documents; an unpublished batch of 10,000
changes at two sizes of a collection, and the publication of those batches. Ratios hold between
machines, seconds do not. Progress goes to standard error.

Another process creates the events, one segment at a time. Lake and tables are in a temporary
directory (``TMPDIR``): about 0.3 GB for a million events. Fifty million events take half an hour
and 15 GB: ``--events 1000000 50000000 --keys 1000 2000``.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bson import Timestamp
from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.lake.segment import Documents
from tailrace.pipeline import changes
from tailrace.pipeline.session import open_session
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline

SEGMENT = 50_000
BATCH = 10_000
PADDING = "x" * 420
"""Makes an event about 600 bytes of BSON."""

LONG = 86_400
"""The longest interval in seconds that the settings accept; for a benchmark, never."""


class Load:
    """A lake of one collection, and its events."""

    def __init__(
        self,
        spark: SparkSession,
        writer: Executor,
        directory: Path,
        documents: Documents = Documents.BSON,
    ) -> None:
        self.pipeline = Pipeline(spark, directory, documents)
        self.landing = self.pipeline.landing
        self.writer = writer
        self.number = 0

    def land(self, count: int, key: Callable[[int], int]) -> None:
        """Lands ``count`` replacements; ``key`` gives the document of each."""
        for begin in range(0, count, SEGMENT):
            keys = [key(at) for at in range(begin, min(count, begin + SEGMENT))]
            self.landing = self.writer.submit(landed, self.landing, keys, self.number).result()
            self.number += len(keys)
            progress(f"landed {begin + len(keys):,} of {count:,} events")

    def stages(self) -> dict[str, float]:
        """The seconds of each stage, for everything that has landed."""
        current = self.pipeline.job(history=False)
        history = self.pipeline.job()

        def log() -> None:
            log = current.log.load()
            while batch := list(current._batch(log)):
                log, _ = changes.append(current.spark, log, [batch])

        return {
            "log": timed(log),
            "current": timed(lambda: current.publish(everything=True)),
            "history": timed(lambda: history.publish(everything=True)),
            "quality": timed(history.count),
        }


def landed(landing: Landing, keys: list[int], number: int) -> Landing:
    """Lands a segment of replacements; another process does, to spare the driver's memory."""
    landing.land([_replacement(key, number + at) for at, key in enumerate(keys, 1)])
    return landing


def _replacement(key: int, number: int) -> dict[str, Any]:
    seconds, increment = divmod(number, 1000)
    return {
        "_id": {"_data": f"82{number:060x}"},
        "operationType": "replace",
        "clusterTime": Timestamp(1_700_000_000 + seconds, increment + 1),
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": key},
        "fullDocument": {"_id": key, "n": number, "text": PADDING},
    }


def say(what: str, **figures: Any) -> None:
    print(json.dumps({"what": what, **figures}), flush=True)


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def load(
    spark: SparkSession,
    writer: Executor,
    directory: Path,
    events: int,
    form: Documents = Documents.BSON,
) -> None:
    """New events, ten for each document, into empty tables."""
    lake = Load(spark, writer, directory, form)
    keys = max(1, events // 10)
    lake.land(events, lambda at: at % keys)
    for process in _processes(spark).values():
        Path(f"/proc/{process}/clear_refs").write_text("5")  # resets the peaks: proc(5)
    stages = lake.stages()
    seconds = sum(stages.values())
    say("load", events=events, form=form.value, seconds=round(seconds, 1),
        events_a_second=round(events / seconds), memory=driver_memory(spark),
        seconds_by_stage={name: round(value, 1) for name, value in stages.items()})  # fmt: skip


def batches(
    spark: SparkSession, writer: Executor, directory: Path, sizes: list[int], rounds: int
) -> None:
    """Changes spread over a collection at several of its sizes, in turns."""
    loads = {size: Load(spark, writer, directory / f"keys{size}") for size in sizes}
    jobs = {}
    for size, each in loads.items():
        progress(f"a collection of {size:,} documents")
        each.land(size, lambda at: at)
        each.pipeline.run(history=False)
        jobs[size] = each.pipeline.job(publish_ratio=10, publish_seconds=LONG, history=False)
    chance = random.Random(1)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(rounds):
        for size, each in loads.items():
            each.land(BATCH, lambda at, size=size: chance.randrange(size))  # type: ignore[misc]
            seconds[size].append(timed(jobs[size].step))
        progress(f"round {turn + 1} of {rounds}")
    for size, job in jobs.items():
        median = statistics.median(seconds[size])
        say("batch, not published", keys=size, events=BATCH, seconds=round(median, 2))
        published = timed(partial(job.publish, everything=True))
        say("publication", keys=size, events=BATCH * rounds, seconds=round(published, 2))


def driver_memory(spark: SparkSession) -> dict[str, int]:
    """Megabytes: the resident peaks of Python and Java, and the size of Java's heap in use."""
    peaks = {f"{name}_peak_mb": _peak(process) for name, process in _processes(spark).items()}
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    kept = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {**peaks, "java_heap_mb": round(kept)}


def _processes(spark: SparkSession) -> dict[str, int]:
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    return {"python": os.getpid(), "java": java.ProcessHandle.current().pid()}


def _peak(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="What the pipeline costs.")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    parser.add_argument("--events", type=int, nargs="+", help="of each load")
    parser.add_argument("--keys", type=int, nargs="+", help="sizes of a collection")
    options = parser.parse_args()
    quick = options.quick
    events = options.events or ([10_000, 50_000] if quick else [100_000, 300_000, 1_000_000])
    keys = options.keys or ([10_000, 50_000] if quick else [100_000, 4_000_000])
    writer = ProcessPoolExecutor(1, get_context("spawn"))
    with tempfile.TemporaryDirectory() as name, writer:
        directory = Path(name)
        began = time.perf_counter()
        spark = open_session(PipelineSettings(master="local[2]"))
        say("start of Spark", seconds=round(time.perf_counter() - began, 1))
        try:
            for count in sorted({1000, *events}):
                load(spark, writer, directory / f"load{count}", count)
            for form in (Documents.BSON, Documents.CANONICAL):
                load(spark, writer, directory / form.value, min(events), form)
            batches(spark, writer, directory, sorted(keys), 3 if quick else 7)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
