"""The CPU seconds of a Spark session: of Python, Java and the workers."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tests import times


def cpu_seconds(pid: int) -> float:
    """Of a process and all below it, and of the ended ones that were waited for
    (:mod:`tests.pipeline.worker_daemon` waits for Python workers)."""
    # A process that ends between the reading of its parent and its own is missing in one reading.
    return max(times.cpu_seconds(pid) for _ in range(2))


@contextmanager
def measured(spark: SparkSession) -> Iterator[dict[str, float]]:
    """Fills in the wall and CPU seconds of the block."""
    java = processes(spark)["java"]
    cost: dict[str, float] = {}
    began, cpu, own = time.perf_counter(), cpu_seconds(java), time.process_time()
    yield cost
    used = cpu_seconds(java) - cpu + time.process_time() - own
    cost |= {"seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(used, 2)}


def processes(spark: SparkSession) -> dict[str, int]:
    java = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    return {"python": os.getpid(), "java": java.ProcessHandle.current().pid()}
