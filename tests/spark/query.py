"""A stream over a lake as Spark runs it, without Spark."""

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from tailrace.spark.offsets import Offsets
from tailrace.spark.reading import read
from tests.pipeline.landing import Landing

Batch = list[dict[str, Any]]


class Query:
    """A checkpoint: the offsets of the batches, the last of which may not be committed."""

    def __init__(self, landing: Landing) -> None:
        self.landing = landing
        self.offset = "{}"

    def batches(self, commits: int | None = None, **options: str) -> list[Batch]:
        """Runs until what is there now is read, or until so many batches are committed."""
        offsets = Offsets({"lake": str(self.landing.path), **options})
        offsets.stop_at_present()
        limit: ReadLimit = offsets.limit
        batches: list[Batch] = []
        while commits is None or len(batches) < commits:
            start = json.loads(self.offset)
            end = json.loads(json.dumps(offsets.latest(start, limit)))
            parts = offsets.parts(start, end)
            batch = [row for part in parts for each in read(part) for row in each.to_pylist()]
            self.offset = json.dumps(end)
            if end == start:
                break
            batches.append(batch)
        return [batch for batch in batches if batch]

    def run(self, **options: str) -> list[list[tuple[str, int, int]]]:
        """Scope, segment and ordinal of the rows, by batch."""
        return [
            sorted((row["scope"], row["segment"], row["ordinal"]) for row in batch)
            for batch in self.batches(None, **options)
        ]
