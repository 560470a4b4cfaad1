"""Streams of both views, and a process with them that is killed after each has written a batch.

``python -m tests.pipeline.killed_streams LAKE DIRECTORY``
"""

import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tailrace.config.pipeline import PipelineSettings
from tailrace.pipeline.session import open_session
from tailrace.spark import register
from tests.checkout import ROOT
from tests.pipeline.conftest import SETTINGS
from tests.s3 import CREDENTIALS

_PAGE = (ROOT / "docs" / "spark.md").read_text()
(_MERGE,) = re.findall(r"```python\n([^`]*\.writeStream\..*?)```", _PAGE, re.DOTALL)

Written = Callable[[int], object]
"""Called after a batch is written, and before Spark notes that; takes its number."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The events of a lake in files of Parquet, and its changes merged as docs/spark.md shows."""

    lake: str
    directory: Path

    @property
    def _options(self) -> dict[str, str]:
        """Access to S3 is in the options: a shared session's Java has other variables."""
        access = {**CREDENTIALS, "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"]}
        return {**access, "max_segments": "1"}

    def read_events(self, spark: SparkSession, written: Written = int) -> None:
        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{self.directory}/events/{number}")
            written(number)

        register(spark)
        reader = spark.readStream.format("tailrace").option("lake", self.lake)
        writer = reader.options(**self._options).load().writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", f"{self.directory}/checkpoint of events")
        writer.trigger(availableNow=True).start().awaitTermination()

    def merge_changes(self, spark: SparkSession, written: Written = int) -> None:
        code = _MERGE
        for shown, here in {
            '"data/lake")': f"{self.lake!r}).options(**{self._options!r})",
            "data/orders": f"{self.directory}/orders",
            "data/checkpoint": f"{self.directory}/checkpoint of changes",
            ".execute()\n": ".execute()\n    written(number)\n",
        }.items():
            assert shown in code
            code = code.replace(shown, here)
        exec(code, {"spark": spark, "written": written})

    def committed(self, view: str) -> int:
        """The batches that Spark has noted as done."""
        commits = self.directory / f"checkpoint of {view}" / "commits"
        return sum(each.name.isdigit() for each in commits.iterdir())


def _main(lake: str, directory: str) -> None:
    spark = open_session(PipelineSettings(master="local[2]", spark=SETTINGS))
    streams = Streams(lake, Path(directory))

    def kill(number: int) -> None:
        if number == 1:
            os.killpg(0, signal.SIGKILL)  # Java, too, and its Python processes

    def merge(number: int) -> None:
        if number == 1:
            streams.merge_changes(spark, kill)

    streams.read_events(spark, merge)


if __name__ == "__main__":
    _main(*sys.argv[1:])
