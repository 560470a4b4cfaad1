"""What the pipeline costs: ``python -m tests.pipeline.bench [--events N] [--keys SMALL LARGE]``.

Prints one JSON object a line: the start of Spark; a first load by stage; a batch of 10,000 events
into the log at two sizes of a collection, interleaved, and the same with its publication; and what
the driver's memory came to. Ratios hold between machines, seconds do not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bson import Timestamp
from pyspark.sql import SparkSession

from service.pipeline import changes, state
from service.pipeline.job import Job, JobSettings
from service.pipeline.location import Location
from service.pipeline.segments import Lake
from service.pipeline.session import SessionSettings, open_session
from tests.pipeline.landing import Landing

SEGMENT = 50_000
BATCH = 10_000
PADDING = "x" * 420
"""Makes an event 600 bytes of BSON, about."""


class Load:
    """A lake of one collection, its job, and events for it."""

    def __init__(self, spark: SparkSession, directory: Path, **settings: Any) -> None:
        self.landing = Landing(directory / "lake")
        self.number = 0
        self.job = Job(
            spark,
            Lake.open(Location.of(str(directory / "lake"))),
            Location.of(str(directory / "tables")),
            JobSettings(**settings),
        )

    def land(self, keys: Sequence[int]) -> None:
        for begin in range(0, len(keys), SEGMENT):
            self.landing.land(list(self._events(keys[begin : begin + SEGMENT])))

    def _events(self, keys: Sequence[int]) -> Iterator[dict[str, Any]]:
        for key in keys:
            self.number += 1
            seconds, increment = divmod(self.number, 1000)
            yield {
                "_id": {"_data": f"82{self.number:060x}"},
                "operationType": "replace",
                "clusterTime": Timestamp(1_700_000_000 + seconds, increment + 1),
                "ns": {"db": "shop", "coll": "orders"},
                "documentKey": {"_id": key},
                "fullDocument": {"_id": key, "n": self.number, "text": PADDING},
            }


def say(what: str, **figures: Any) -> None:
    print(json.dumps({"what": what, **figures}), flush=True)


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def first_load(spark: SparkSession, directory: Path, events: int) -> None:
    """All events at once, by stage."""
    load = Load(spark, directory, batch_events=10**9)
    load.land([at % max(1, events // 10) for at in range(events)])
    seconds = {
        "log": timed(lambda: changes.append(spark, load.job.log.load(), list(load.job._batch()))),
        "current_and_history": timed(lambda: load.job.publish(everything=True)),
        "quality": timed(load.job.count),
    }
    total = sum(seconds.values())
    say("first load", events=events, events_a_second=round(events / total),
        **{f"{name}_seconds": round(value, 1) for name, value in seconds.items()})  # fmt: skip


def batches(spark: SparkSession, directory: Path, sizes: Sequence[int], rounds: int) -> None:
    """A batch of changes at several sizes of the collection, one size after the other."""
    loads = {}
    for size in sizes:
        load = Load(spark, directory / str(size), history=False, publish_ratio=10)
        load.land(range(size))
        load.job.run_once()
        load.job.progress.published = 0
        loads[size] = load
    appended: dict[int, list[float]] = {size: [] for size in sizes}
    chance = random.Random(1)
    for _ in range(rounds):
        for size, load in loads.items():
            load.land([chance.randrange(size) for _ in range(BATCH)])
            before = load.job.progress.published
            seconds = timed(load.job.step)
            if load.job.progress.published == before:
                appended[size].append(seconds)
    medians = {size: statistics.median(values) for size, values in appended.items()}
    published = {size: timed(lambda load=load: load.job.publish(everything=True))
                 for size, load in loads.items()}  # fmt: skip
    for size in sizes:
        say("batch", keys=size, events=BATCH, seconds=round(medians[size], 2),
            times_the_smallest=round(medians[size] / medians[sizes[0]], 2),
            publication_seconds=round(published[size], 1))  # fmt: skip


def driver_memory(spark: SparkSession) -> dict[str, float]:
    """Megabytes: Python's own, and what lives in Java's heap."""
    with open("/proc/self/statm") as file:
        python = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]
    java = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {"python_mb": round(python), "java_heap_mb": round(java)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--keys", type=int, nargs=2, default=[100_000, 1_600_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    began = time.perf_counter()
    spark = open_session(SessionSettings("local[2]"))
    say("start of Spark", seconds=round(time.perf_counter() - began, 1))
    with tempfile.TemporaryDirectory() as directory:
        first_load(spark, Path(directory) / "warm", 1000)
        for events in options.events:
            first_load(spark, Path(directory) / f"load{events}", events)
            say("driver memory", events=events, **driver_memory(spark))
        batches(spark, Path(directory), options.keys, options.rounds)
    say("small tables are written whole up to", megabytes=state._SMALL_TABLE / 2**20)


if __name__ == "__main__":
    main()
