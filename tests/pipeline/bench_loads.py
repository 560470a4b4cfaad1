"""The lakes of the benchmark: events of one collection, or of many small ones."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bson import Decimal128, Timestamp
from pyspark.sql import SparkSession

from tailrace.lake.segment import Documents
from tailrace.pipeline import log_commit
from tests.pipeline.cpu import measured
from tests.pipeline.landing import Landing
from tests.pipeline.pipeline import Pipeline

SEGMENT = 50_000
PADDING = "x" * 420
"""Makes an event about 600 bytes of BSON."""

COLUMNS = {
    **{f"text{at}": "string" for at in range(3)},
    **{f"whole{at}": "long" for at in range(3)},
    "price": "decimal",
    "share": "double",
    "paid": "boolean",
    "at": "timestamp",
}
"""Ten typed columns, of fields that every document has."""

SMALL = 40
"""How many small collections there are."""


class Load:
    """A lake of one collection, and its events; ``typed``: with the fields of :data:`COLUMNS`."""

    def __init__(
        self,
        spark: SparkSession,
        writer: Executor,
        directory: Path,
        documents: Documents = Documents.BSON,
        *,
        typed: bool = False,
    ) -> None:
        self.pipeline = Pipeline(spark, directory, documents)
        self.landing = self.pipeline.landing
        self.writer, self.typed = writer, typed
        self.number = 0

    def land(self, count: int, key: Callable[[int], int]) -> None:
        """Lands ``count`` replacements; ``key`` gives the document of each."""
        for begin in range(0, count, SEGMENT):
            keys = [key(at) for at in range(begin, min(count, begin + SEGMENT))]
            self.landing = self.writer.submit(
                landed, self.landing, keys, self.number, self.typed
            ).result()
            self.number += len(keys)
            progress(f"landed {begin + len(keys):,} of {count:,} events")

    def stages(self) -> dict[str, dict[str, float]]:
        """The cost of each stage, for everything that has landed."""
        current = self.pipeline.job(history=False)
        history = self.pipeline.job()

        def log() -> None:
            log = current.log.load()
            while batch := list(current._batch(log)):
                log, _ = log_commit.append(current.spark, log, [batch])

        stages: dict[str, Callable[[], object]] = {
            "log": log,
            "current": lambda: current.publish(everything=True),
            "history": lambda: history.publish(everything=True),
            "quality": history.count,
        }
        costs = {}
        for name, work in stages.items():
            with measured(current.spark) as costs[name]:
                work()
        return costs


def landed(landing: Landing, keys: list[int], number: int, typed: bool) -> Landing:
    """Lands a segment of replacements; another process does, to spare the driver's memory."""
    events = [_replacement(key, number + at) for at, key in enumerate(keys, 1)]
    for at, event in enumerate(events if typed else ()):
        event["fullDocument"] |= {**_fields(number + at), "text": PADDING[:250]}
    landing.land(events)
    return landing


def landed_in_many(landing: Landing, changes: int, number: int) -> Landing:
    """Lands replacements of documents of :data:`SMALL` collections in turns."""
    events = [_replacement(at // SMALL, number + at) for at in range(1, changes + 1)]
    for at, event in enumerate(events):
        event["ns"] = {"db": "shop", "coll": f"c{at % SMALL}"}
    landing.land(events)
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


def _fields(number: int) -> dict[str, Any]:
    return {
        **{f"text{at}": f"a text {number}" for at in range(3)},
        **{f"whole{at}": number + at for at in range(3)},
        "price": Decimal128(f"{number}.25"),
        "share": number / 7,
        "paid": number % 2 == 0,
        "at": datetime.fromtimestamp(1_700_000_000 + number, UTC),
    }


def progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
