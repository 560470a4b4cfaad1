"""The CPU seconds of processes with their descendants (``/proc``: proc(5))."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Of a process, its living descendants, and the ended ones that were waited for."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            found = (directory / "stat").read_text()
        except OSError:  # it has ended
            continue
        values = found.rpartition(")")[2].split()
        process, parent = int(directory.name), int(values[1])
        ticks[process] = sum(map(int, values[11:15]))
        children.setdefault(parent, []).append(process)
    total, some = 0, [pid]
    while some:
        process = some.pop()
        total += ticks.get(process, 0)
        some += children.get(process, [])
    return total / _TICKS


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
