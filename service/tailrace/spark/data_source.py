"""The data source's classes, which Spark pickles for its Python processes.

They are made in a function, so that Spark sends their code and not only their names: in a process
without Tailrace they say how to install it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType


def data_source() -> type[DataSource]:
    """The class of the format ``tailrace``."""

    def loaded(name: str) -> Any:
        import importlib

        try:
            return importlib.import_module(f"tailrace.spark.{name}")
        except ImportError as error:
            raise RuntimeError(
                f"a Python process of Spark cannot import Tailrace ({error}): install it on every "
                "node ('pip install tailrace[lake]' in the image, the cluster's libraries or the "
                "environment of a serverless notebook), or, if its dependencies are there, send "
                "it: spark.addArtifacts('tailrace.zip', pyfile=True)"
            ) from None

    class LakeReader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def partitions(self) -> Sequence[InputPartition]:
            parts = loaded("planning").whole_lake(self.options)
            return [InputPartition(part) for part in parts] or [InputPartition(None)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = loaded("reading").read(partition.value)
            return batches

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options
            self.offsets: Any = None

        def planned(self) -> Any:
            if self.offsets is None:
                self.offsets = loaded("offsets").Offsets(self.options)
            return self.offsets

        def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the name is Spark's
            return {}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            limit: ReadLimit = self.planned().limit
            return limit

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            offset: dict[str, Any] = self.planned().latest(start, limit)
            return offset

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.planned().stop_at_present()

        def partitions(
            self, start: dict[str, Any], end: dict[str, Any]
        ) -> Sequence[InputPartition]:
            return [InputPartition(part) for part in self.planned().parts(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = loaded("reading").read(partition.value)
            return batches

    class TailraceDataSource(DataSource):
        def __init__(self, options: Any) -> None:
            super().__init__(options)
            self.chosen = dict(options.items())
            loaded("options").require_valid(self.chosen)

        @classmethod
        def name(cls) -> str:
            return "tailrace"

        def schema(self) -> str:
            schema: str = loaded("options").schema_of(self.chosen)
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return LakeReader(self.chosen)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return StreamReader(self.chosen)

    return TailraceDataSource
