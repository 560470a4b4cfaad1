"""``tailrace pipeline``: the Spark job. It needs the extra ``pipeline`` and Java."""

import argparse
import sys

from tailrace.cli.arguments import needs_pipeline


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


def run(options: argparse.Namespace) -> int:
    """Runs the job once, or until a signal."""
    with needs_pipeline("tailrace pipeline"):
        from tailrace.pipeline import entry
    from tailrace.observe import logs

    logs.configure("info", "console" if sys.stderr.isatty() else "json")
    return entry.run(options)
