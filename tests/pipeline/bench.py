"""What the pipeline costs: ``make bench WHAT=pipeline``, or ``python -m tests.pipeline.bench``.

Prints one JSON object a line, for each part (``--only NAME ...``):

``load``: loads of growing size with the seconds of each stage and the driver's memory; ``forms``:
one load in each form of documents; ``batches``: 10,000 changes spread over collections of several
sizes, into the log and then into ``current``; ``small``: 10,000 changes in 40 small collections;
``columns``: ten typed columns, beside none; ``cold``: the first tables after a
snapshot of three collections; ``following``: freshness and cost of a pipeline that keeps running.

CPU seconds are those of Python, Java and their children. Ratios hold between machines, seconds do
not. Progress goes to standard error.

Another process creates the events, one segment at a time. Lake and tables are in a temporary
directory (``TMPDIR``): about 0.3 GB for a million events. Fifty million events take half an hour
and 15 GB: ``--events 1000000 50000000 --keys 1000 2000``.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.lake.segment import Documents
from tailrace.pipeline.session import open_session
from tests.pipeline import worker_daemon
from tests.pipeline.bench_loads import COLUMNS, SMALL, Load, landed_in_many, progress
from tests.pipeline.bench_process import cold, following
from tests.pipeline.cpu import measured, processes
from tests.pipeline.pipeline import Pipeline

BATCH = 10_000
PARTS = ("load", "forms", "batches", "small", "columns", "cold", "following")

LONG = 86_400
"""The longest interval in seconds that the settings accept; for a benchmark, never."""


def say(what: str, **figures: Any) -> None:
    print(json.dumps({"what": what, **figures}), flush=True)


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
    for process in processes(spark).values():
        Path(f"/proc/{process}/clear_refs").write_text("5")  # resets the peaks: proc(5)
    with measured(spark) as cost:
        stages = lake.stages()
    say("load", events=events, form=form.value, **cost,
        memory=driver_memory(spark), by_stage=stages)  # fmt: skip


def batches(
    spark: SparkSession, writer: Executor, directory: Path, sizes: list[int], rounds: int
) -> None:
    """Changes spread over collections of several sizes, in turns."""
    loads = {size: Load(spark, writer, directory / f"keys{size}") for size in sizes}
    jobs = {}
    publications: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for size, each in loads.items():
        progress(f"a collection of {size:,} documents")
        each.land(size, lambda at: at)
        each.pipeline.run(history=False)
        jobs[size] = each.pipeline.job(publish_ratio=10, publish_seconds=LONG, history=False)
    chance = random.Random(1)
    costs: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for turn in range(rounds):
        for size, each in loads.items():
            each.land(BATCH, lambda at, size=size: chance.randrange(size))  # type: ignore[misc]
            with measured(spark) as cost:
                jobs[size].step()
            costs[size].append(cost)
            with measured(spark) as cost:
                jobs[size].publish(everything=True)
            publications[size].append(cost)
            progress(f"round {turn + 1} of {rounds}, {size:,} documents: {cost}")
    for size in sizes:
        say("batch into the log", keys=size, events=BATCH, **medians(costs[size]))
        first = publications[size][0]["cpu_seconds"]
        say("publication", keys=size, events=BATCH, first=first, **medians(publications[size]))


def small(spark: SparkSession, writer: Executor, directory: Path, rounds: int) -> None:
    """Changes spread over many small collections, into ``current`` and ``history``."""
    pipeline = Pipeline(spark, directory)
    landing, number, costs = pipeline.landing, 0, []
    for turn in range(rounds + 1):
        landing = writer.submit(landed_in_many, landing, BATCH, number).result()
        number += BATCH
        with measured(spark) as cost:
            pipeline.run()
        costs += [cost] if turn else []  # the first one makes the tables
        progress(f"small collections: round {turn} of {rounds}: {cost}")
    say("changes in small collections", collections=SMALL, events=BATCH, **medians(costs))


def columns(
    spark: SparkSession, writer: Executor, directory: Path, events: int, rounds: int
) -> None:
    """The same load into all tables without typed columns and with ten, in turns."""
    costs: dict[int, list[dict[str, float]]] = {0: [], len(COLUMNS): []}
    for turn in range(rounds + 1):
        for count, found in costs.items():
            lake = Load(spark, writer, directory / f"turn{turn}-{count}", typed=True)
            lake.land(events, lambda at: at % (events // 10))
            declared = {"shop.orders": COLUMNS if count else {}}
            with measured(spark) as cost:
                lake.pipeline.run(columns=declared)
            found += [cost] if turn else []  # Java compiles in the first one
            progress(f"{count} columns: {cost}")
    for count, found in costs.items():
        say("typed columns", columns=count, events=events, **medians(found))


def medians(costs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}


def driver_memory(spark: SparkSession) -> dict[str, int]:
    """Megabytes: the resident peaks of Python and Java, and the size of Java's heap in use."""
    peaks = {f"{name}_peak_mb": _peak(process) for name, process in processes(spark).items()}
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    kept = (runtime.totalMemory() - runtime.freeMemory()) / 2**20
    return {**peaks, "java_heap_mb": round(kept)}


def _peak(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="What the pipeline costs.")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work?")
    parser.add_argument("--events", type=int, nargs="+", help="of each load")
    parser.add_argument("--keys", type=int, nargs="+", help="sizes of a collection")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="these parts")
    options = parser.parse_args()
    quick, only = options.quick, options.only
    events = options.events or ([10_000, 50_000] if quick else [100_000, 300_000, 1_000_000])
    keys = options.keys or ([10_000, 50_000] if quick else [20_000, 200_000, 2_000_000])
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if set(only) - {"cold", "following"}:
            in_one_session(directory, only, sorted(events), sorted(keys), rounds)
        for part in ("cold", "following"):
            (directory / part).mkdir()
        if "cold" in only:
            documents = 30_000 if quick else 300_000
            say("first tables", documents=documents, **cold(directory / "cold", documents))
        if "following" in only:
            seconds = (20, 40) if quick else (60, 150)
            say("keeps running", **following(directory / "following", *seconds))


def in_one_session(
    directory: Path, only: Sequence[str], events: list[int], keys: list[int], rounds: int
) -> None:
    began = time.perf_counter()
    spark = open_session(PipelineSettings(master="local[2]", spark=worker_daemon.SETTING))
    say("start of Spark", seconds=round(time.perf_counter() - began, 1))
    with ProcessPoolExecutor(1, get_context("spawn")) as writer:
        try:
            for count in sorted({1000, *events}) if "load" in only else []:
                load(spark, writer, directory / f"load{count}", count)
            for form in (Documents.BSON, Documents.CANONICAL) if "forms" in only else []:
                load(spark, writer, directory / form.value, events[0], form)
            if "small" in only:
                small(spark, writer, directory / "small", rounds)
            if "columns" in only:
                columns(spark, writer, directory / "columns", events[0], rounds)
            if "batches" in only:
                batches(spark, writer, directory, keys, 2 * rounds + 1)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
