"""The measurement of the benchmark."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.daemon import until
from tests.pipeline.cpu import cpu_seconds


def _busy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while time.process_time() < 0.5:
        pass
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "parent": [os.getppid()]})


def test_the_cpu_time_of_a_python_worker_that_has_ended_is_counted(spark: SparkSession) -> None:
    rows = spark.range(0, 1, 1, 1).mapInArrow(_busy, "pid long, parent long")
    (worker,) = rows.collect()
    before = cpu_seconds(worker.parent)
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{worker.pid}").exists(), "the worker has ended")
    assert cpu_seconds(worker.parent) >= before
