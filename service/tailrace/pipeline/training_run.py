"""Runs the pipeline on a sample, to archive the classes that it loads."""

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline import spark_process
from tailrace.pipeline.follow import Follower
from tailrace.pipeline.job import Job
from tailrace.pipeline.location import Location
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import open_session
from tailrace.pipeline.tables import DeltaStore

_BATCHES = 2
"""The second batch changes tables that are there."""

Columns = Mapping[str, Mapping[str, str]]
Land = Callable[[str], None]
"""Lands a batch in the lake at a path."""


def archive_classes(archive: Path, land: Land, columns: Columns) -> None:
    """Writes the archive, from runs over what ``land`` lands, with typed ``columns``.

    Raises :class:`PipelineRefused`.
    """
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)  # Java writes none while it uses another
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".classes-") as directory:
            written = Path(directory, archive.name)
            # Java would print a warning for each class that no archive can hold.
            java = [f'"-XX:ArchiveClassesAtExit={written}"', "-Xlog:disable"]
            _run(Path(directory), java, land, columns)
            if not written.is_file():
                raise PipelineRefused(
                    f"{archive}: Java wrote no archive. It needs 200 MB, and an OpenJDK"
                )
            os.replace(written, archive)
    except OSError as error:
        raise PipelineRefused(f"{archive}: cannot be written: {describe(error)}") from error


def _run(directory: Path, java: Sequence[str], land: Land, columns: Columns) -> None:
    lake, tables = Location.of(str(directory / "lake")), Location.of(str(directory / "tables"))
    settings = PipelineSettings.model_validate(
        {
            "columns": columns,
            "spark": {"spark.driver.extraJavaOptions": " ".join(java)},
        }
    )
    spark = open_session(settings, [lake, tables])
    try:
        for _ in range(_BATCHES):
            land(lake.path)
            job = Job(spark, LandedLake.open(lake), DeltaStore(tables), settings, settings.columns)
            Follower(job).run(threading.Event(), once=True)
    finally:
        spark_process.end(spark)
