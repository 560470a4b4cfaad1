"""The command ``tailrace pipeline``: finds out whether there is work, and only then loads Spark."""

import argparse
import signal
import threading
from types import FrameType

import structlog

from tailrace.pipeline import declaration
from tailrace.pipeline.idle import is_up_to_date
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.options import chosen
from tailrace.pipeline.progress import JobProgress
from tailrace.pipeline.segments import LandedLake

_log = structlog.get_logger()


def run(options: argparse.Namespace) -> int:
    """Runs the pipeline. Exit code 0: all work is done, or a signal stopped it in order."""
    settings, lake_at, store = chosen(options)
    lake = LandedLake.open(lake_at)
    store.require_writable()
    # Without a file no columns are declared: the declaration in the tables is kept.
    columns = settings.columns if options.config else None
    if columns and not options.rebuild:
        declaration.check(store, lake.identity, columns)
    if options.once and not options.rebuild and is_up_to_date(lake, store, settings, columns):
        if options.maintain:
            _log.info("tables.maintained", **maintain(lake, store, settings))
        _log.info("pipeline.finished", **JobProgress().counts())
        return 0
    stop = _stop_on_signals()
    from tailrace.pipeline import job_run  # and with it pyspark: a quarter of a second

    job_run.run(options, settings, lake, store, columns, stop)
    return 0


def _stop_on_signals() -> threading.Event:
    """SIGTERM and SIGINT end the run after the current batch; a second signal ends it at once."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise SystemExit(3)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop
