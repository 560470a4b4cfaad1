"""Spark's Java process, with what it prints in our log, of which each line is one JSON object."""

import os
import re
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

import structlog
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

_log = structlog.get_logger()

_EXPECTED = re.compile(
    r"Using incubator modules|Spark's default log4j profile|[Ss]et\w* default log level"
    r"|To adjust logging level|NativeCodeLoader|Your hostname|SPARK_LOCAL_IP|^\s*$"
)
"""Lines that Spark prints at every start."""

_TRACEBACK = re.compile(r"^\s+at |^Caused by: |^\s+\.\.\. \d+ more|^\s+Suppressed: ")
"""Lines below an error. The job reports its cause."""

_KEPT = 5
"""How many lines are kept for the message of a start that failed."""


def start(settings: Mapping[str, str]) -> SparkContext:
    """Starts Java and a Spark context.

    Raises ``RuntimeError`` with what Java printed last if it does not start.
    """
    conf = SparkConf().setAll([*settings.items()])
    reader, writer = os.pipe()
    output = _Output(reader)
    try:
        gateway = launch_gateway(conf, {"stdout": writer, "stderr": writer})  # type: ignore[no-untyped-call]
    except Exception as error:
        os.close(writer)
        output.thread.join(10)
        raise RuntimeError("; ".join(output.last) or str(error)) from error
    os.close(writer)
    return SparkContext(conf=conf, gateway=gateway)


def has_ended(session: SparkSession) -> bool:
    """Whether Java has ended; False if another process started it."""
    gateway: Any = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is not None and process.poll() is not None


def end(session: SparkSession) -> None:
    """Ends Spark, and returns when the Java process that :func:`start` began has ended."""
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which Spark takes for the end of Python
    gateway.proc.wait()


class _Output:
    """Reads what Java and its workers print, until all of them have ended."""

    def __init__(self, descriptor: int) -> None:
        self.last: deque[str] = deque(maxlen=_KEPT)
        self._descriptor = descriptor
        self.thread = threading.Thread(target=self._read, name="spark output", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with open(self._descriptor, encoding="utf-8", errors="replace") as lines:
            for line in map(str.rstrip, lines):
                if _EXPECTED.search(line) or _TRACEBACK.match(line):
                    continue
                self.last.append(line)
                _log.warning("spark.printed", line=line)
