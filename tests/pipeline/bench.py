"""What the pipeline costs: ``make bench-pipeline``, or ``python -m tests.pipeline.bench --quick``.

Prints one JSON object a line: the start of Spark, and its first and slowest thousand events; loads
of growing size with the events a second of each stage, and the driver's memory; one load landed as
BSON and as Extended JSON; a batch of 10,000 changes that is not published at two sizes of a
collection, interleaved, and the publication of those batches. Ratios hold between machines, seconds
do not. Progress goes to standard error.

Memory is bounded: events are made a segment at a time, in another process. Lake and tables lie in a
temporary directory (``TMPDIR``): 0.3 GB for a million events, about. On one machine Java does the
executors' work too, so its resident peak nears ``--memory`` whatever the driver itself does; what
the driver alone holds shows in Python's peak and in Java's heap after a collection.

Fifty million events take half an hour and 15 GB: ``--events 1000000 50000000 --keys 1000 2000``.
"""

from __future__ import annotations

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
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bson import Timestamp
from pyspark.sql import SparkSession

from tailrace.lake.segment import Documents
from tailrace.pipeline import changes
from tailrace.pipeline.job import Job, JobSettings
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import SessionSettings, close_session, open_session
from tests.pipeline.landing import Landing

SEGMENT = 50_000
BATCH = 10_000
PADDING = "x" * 420
"""Makes an event 600 bytes of BSON, about."""

LONG = 1e9
"""Seconds: never, as far as a benchmark goes."""


class Load:
    """A lake of one collection, its job, and events for it."""

    def __init__(
        self,
        spark: SparkSession,
        writer: Executor,
        directory: Path,
        documents: Documents = Documents.BSON,
        **settings: Any,
    ) -> None:
        self.landing = Landing(directory / "lake", documents)
        self.writer = writer
        self.number = 0
        self.job = Job(
            spark,
            LandedLake.open(Location.of(str(directory / "lake"))),
            Location.of(str(directory / "tables")),
            JobSettings(publish_seconds=LONG, **settings),
        )

    def land(self, count: int, key: Callable[[int], int]) -> None:
        """Lands so many replacements; ``key`` says of which document each is."""
        for begin in range(0, count, SEGMENT):
            keys = [key(at) for at in range(begin, min(count, begin + SEGMENT))]
            work = self.writer.submit(landed, self.landing, keys, self.number)
            self.landing = work.result()
            self.number += len(keys)
            progress(f"landed {begin + len(keys):,} of {count:,} events")

    def log(self) -> None:
        """All that has landed into the log, in the batches that a run makes."""
        while batch := list(self.job._batch()):
            changes.append(self.job.spark, self.job.log.load(), batch)
            progress(f"logged through segment {batch[-1].footer.segment}")

    def publish(self, *, history: bool) -> None:
        """Brings the tables to the end of the log."""
        self.job.settings = replace(self.job.settings, history=history)
        self.job.publish(everything=True)
        progress(f"published {'history' if history else 'current'}")


def landed(landing: Landing, keys: list[int], number: int) -> Landing:
    """Lands a segment of replacements; in another process, whose memory is none of the driver's."""
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


def first_load(
    spark: SparkSession,
    writer: Executor,
    directory: Path,
    events: int,
    documents: Documents = Documents.BSON,
) -> dict[str, float]:
    """New events, ten to a document, into empty tables: the seconds of each stage."""
    load = Load(spark, writer, directory, documents, history=False)
    keys = max(1, events // 10)
    load.land(events, lambda at: at % keys)
    begin_peaks(spark)
    return {
        "log": timed(load.log),
        "current": timed(lambda: load.publish(history=False)),
        "history": timed(lambda: load.publish(history=True)),
        "quality": timed(load.job.count),
    }


def loads(spark: SparkSession, writer: Executor, directory: Path, counts: list[int]) -> None:
    """First loads, one after the other: their stages, and the memory of the driver."""
    smallest: dict[str, float] = {}
    for events in counts:
        seconds = first_load(spark, writer, directory / f"load{events}", events)
        total = sum(seconds.values())
        say("load", events=events, seconds=round(total, 1), events_a_second=round(events / total),
            seconds_by_stage={name: round(value, 1) for name, value in seconds.items()},
            events_a_second_by_stage={n: round(events / s) for n, s in seconds.items()},
            )  # fmt: skip
        memory = driver_memory(spark)
        smallest = smallest or memory
        say("driver memory", events=events, **{k: round(v) for k, v in memory.items()},
            times_the_smallest={k: round(v / smallest[k], 2) for k, v in memory.items()},
            )  # fmt: skip


def forms(spark: SparkSession, writer: Executor, directory: Path, events: int) -> None:
    """The same load landed in each form of documents, by turns; the better of two runs."""
    best: dict[Documents, dict[str, float]] = {}
    for turn in range(2):
        for form in Documents:
            path = directory / f"{form.value}{turn}"
            seconds = first_load(spark, writer, path, events, form)
            known = best.setdefault(form, seconds)
            best[form] = {name: min(value, known[name]) for name, value in seconds.items()}
    for form, seconds in best.items():
        say("documents", form=form.value, events=events, seconds=round(sum(seconds.values()), 1),
            seconds_by_stage={name: round(value, 1) for name, value in seconds.items()},
            )  # fmt: skip


def batches(
    spark: SparkSession, writer: Executor, directory: Path, sizes: list[int], rounds: int
) -> None:
    """Changes all over a collection at several sizes of it, one size after the other."""
    sets = {}
    for size in sizes:
        progress(f"a collection of {size:,} documents")
        load = Load(spark, writer, directory / f"keys{size}", history=False, publish_ratio=10)
        load.land(size, lambda at: at)
        load.job.run_once()
        sets[size] = load
    chance = random.Random(1)
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(rounds):
        for size, load in sets.items():
            before = load.job.progress.published
            load.land(BATCH, lambda at, size=size: chance.randrange(size))  # type: ignore[misc]
            seconds[size].append(timed(load.job.step))
            if load.job.progress.published != before:
                raise SystemExit("a batch was published that should wait: take fewer --rounds")
        progress(f"round {turn + 1} of {rounds}")
    medians = {size: statistics.median(values) for size, values in seconds.items()}
    published = {size: timed(partial(load.publish, history=False)) for size, load in sets.items()}
    for what, found, events in (
        ("batch, not published", medians, BATCH),
        ("publication", published, BATCH * rounds),
    ):
        for size in sizes:
            say(what, keys=size, events=events, seconds=round(found[size], 2),
                times_the_smallest=round(found[size] / found[sizes[0]], 2))  # fmt: skip


def begin_peaks(spark: SparkSession) -> None:
    """Lets the peaks of both processes begin anew (``clear_refs`` of proc(5))."""
    for process in _processes(spark).values():
        Path(f"/proc/{process}/clear_refs").write_text("5")


def driver_memory(spark: SparkSession) -> dict[str, float]:
    """Megabytes: the resident peaks of Python and Java, and what Java's heap keeps."""
    peaks = {f"{name}_peak_mb": _peak(process) for name, process in _processes(spark).items()}
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    kept = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {**peaks, "peak_mb": sum(peaks.values()), "java_heap_mb": kept}


def _processes(spark: SparkSession) -> dict[str, int]:
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    return {"python": os.getpid(), "java": java.ProcessHandle.current().pid()}


def _peak(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="What the pipeline costs.")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    parser.add_argument("--events", type=int, nargs="+", help="of each load")
    parser.add_argument("--keys", type=int, nargs="+", help="sizes of a collection")
    parser.add_argument("--rounds", type=int, help="batches at each size")
    parser.add_argument("--memory", default="2g", help="Java's heap")
    options = parser.parse_args()
    quick = options.quick
    events = options.events or ([10_000, 50_000] if quick else [100_000, 300_000, 1_000_000])
    keys = options.keys or ([10_000, 50_000] if quick else [100_000, 4_000_000])
    rounds = options.rounds or (3 if quick else 7)
    writer = ProcessPoolExecutor(1, get_context("spawn"))
    with tempfile.TemporaryDirectory() as name, writer:
        directory = Path(name)
        began = time.perf_counter()
        spark = open_session(SessionSettings("local[2]", memory=options.memory))
        say("start of Spark", seconds=round(time.perf_counter() - began, 1))
        try:
            first = first_load(spark, writer, directory / "first", 1000)
            say("first thousand events",
                seconds=round(sum(first.values()), 1))  # fmt: skip
            loads(spark, writer, directory, sorted(events))
            forms(spark, writer, directory, min(events))
            batches(spark, writer, directory, sorted(keys), rounds)
        finally:
            close_session(spark)


if __name__ == "__main__":
    main()
