"""What Spark's data source costs beside Spark's own reader, and beside the conversion alone.

    python -m tests.bench.spark_source [--events 200000] [--rounds 3]

All ways read the same segments in one session, in turns, and the rows go nowhere. CPU seconds are
of Java and all Python processes below it; those of the conversion are of this process.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pyarrow.parquet as pq
from bson import Decimal128, ObjectId
from pyspark.sql import DataFrame, SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.event.json_lines import RELAXED, json_texts
from tailrace.pipeline.session import open_session
from tailrace.spark import register
from tests.pipeline import worker_daemon
from tests.pipeline.cpu import measured
from tests.pipeline.events import Stream
from tests.pipeline.landing import Landing

SEGMENT = 25_000
TEXT = "x" * 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        lake = _lake(Path(directory, "lake"), chosen.events)
        spark = open_session(PipelineSettings(master="local[2]", spark=worker_daemon.SETTING))
        register(spark)
        costs = _costs(spark, lake, chosen.rounds, chosen.events)
        spark.stop()
    base, alone = costs["Spark's own reader"], costs["conversion alone"]
    for name, seconds in costs.items():
        ratios = f"{seconds / base:6.2f} {seconds / alone:6.2f}"
        print(f"{name:24} {seconds:7.2f} CPU s a million events {ratios}")


def _lake(path: Path, events: int) -> Path:
    """Inserts of documents with a dozen fields, about 665 bytes of BSON each."""
    landing, stream = Landing(path), Stream()
    for begin in range(0, events, SEGMENT):
        batch = []
        for number in range(begin, min(events, begin + SEGMENT)):
            name, vip = f"customer {number % 977}", number % 7 == 0
            document: dict[str, Any] = {
                "total": Decimal128(f"{number % 90_000}.{number % 100:02}"),
                "state": "paid",
                "customer": {"name": name, "city": "Zürich", "vip": vip},
                "items": [{"sku": f"sku-{number % 31}", "count": 1 + at} for at in range(3)],
                "at": bson.DatetimeMS(1_700_000_000_000 + number),
                "share": number / 7,
                "text": TEXT,
            }
            batch.append(stream.insert(ObjectId(), **document))
        landing.land(batch)
    return path


def _costs(spark: SparkSession, lake: Path, rounds: int, events: int) -> dict[str, float]:
    def source(**options: str) -> Callable[[], None]:
        reader = spark.read.format("tailrace").option("lake", str(lake)).options(**options)
        return lambda: _through(reader.load())

    ways: dict[str, Callable[[], None]] = {
        "Spark's own reader": lambda: _through(spark.read.parquet(f"{lake}/orders")),
        "bson": source(documents="bson"),
        "json": source(documents="json"),
        "changes, json": source(documents="json", view="changes"),
    }
    found: dict[str, list[float]] = {name: [] for name in (*ways, "conversion alone")}
    for at in range(rounds + 1):
        for name, way in ways.items():
            with measured(spark) as cost:
                way()
            found[name].append(cost["cpu_seconds"])
        found["conversion alone"].append(_conversion(lake))
        print(f"round {at}: { {name: costs[-1] for name, costs in found.items()} }", flush=True)
    million = events / 1_000_000
    return {name: statistics.median(costs[1:]) / million for name, costs in found.items()}


def _through(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _conversion(lake: Path) -> float:
    """CPU seconds of the conversion of all documents to relaxed Extended JSON."""
    used = 0.0
    for path in sorted((lake / "orders").iterdir()):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            documents = file.read_row_group(group, ["full_document"]).column(0).to_pylist()
            began = time.process_time()
            json_texts(documents, RELAXED)
            used += time.process_time() - began
    return used


if __name__ == "__main__":
    main()
