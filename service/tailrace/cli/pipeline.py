"""``tailrace pipeline``: the Spark job. It needs the extra ``pipeline`` and Java.

Exit codes: 0 the tables have what was landed, or a signal came; 1 a failure; 2 wrong usage or
configuration.
"""

import argparse

from tailrace.cli.arguments import needs_pipeline
from tailrace.pipeline import prerequisites


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--config", metavar="FILE", help="the configuration: its section pipeline")
    parser.add_argument("--lake", metavar="DIR", help="the path of the parquet handler")
    parser.add_argument("--tables", metavar="DIR", help="where the tables are")
    parser.add_argument(
        "--once", action="store_true", help="end when the tables have all landed segments"
    )
    parser.add_argument("--rebuild", action="store_true", help="rebuild all tables from segments")
    parser.add_argument("--maintain", action="store_true", help="compact and vacuum at the end")
    parser.add_argument(
        "--fetch-jars",
        action="store_true",
        help="only fetch the jars that Spark needs for s3://, with Maven, and check their hashes",
    )
    parser.add_argument(
        "--archive-classes",
        action="store_true",
        help="only archive the classes that Spark loads: it then starts in half of the CPU time",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the job once, or until a signal."""
    if options.fetch_jars:
        from tailrace.pipeline import jars

        there = jars.directory()
        print(f"{len(jars.fetch(there, jars.pinned()))} jars are in {there}")
        return 0
    with needs_pipeline("tailrace pipeline"):
        prerequisites.require_spark()
        from tailrace.pipeline import entry
    from tailrace.observe import logs

    # What a run over a sample logs would only confuse.
    level = "error" if options.archive_classes else "info"
    logs.configure(level, "auto")
    if options.archive_classes:
        from tailrace.cli import sample_lake
        from tailrace.pipeline import class_archive, training_run

        archive = class_archive.path()
        training_run.archive_classes(archive, sample_lake.sample(), sample_lake.COLUMNS)
        print(f"the classes are in {archive}")
        return 0
    return entry.run(options)
