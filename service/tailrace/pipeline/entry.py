"""Runs the pipeline from the command line: once, or until a signal stops it."""

import argparse
import signal
import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from socket import socket
from types import FrameType

import structlog

from tailrace.config.pipeline import PipelineHttpSettings
from tailrace.errors import PipelineRefused
from tailrace.pipeline import declaration
from tailrace.pipeline.follow import Follower, counts
from tailrace.pipeline.idle import is_up_to_date
from tailrace.pipeline.job import Job
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.options import chosen
from tailrace.pipeline.progress import JobProgress, reported
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import open_session
from tailrace.pipeline.spark_process import has_ended

_log = structlog.get_logger()

_SET_ASIDE = (
    "changes has them, current and history do not: updates that cannot be applied, and changes "
    "that a scope's pipeline left without namespace or document key. quality counts them"
)


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
        _log.info("pipeline.finished", **counts(JobProgress()))
        return 0
    once = options.rebuild or options.once
    stop = _stop_on_signals()
    with ExitStack() as running:
        listener = None if once else running.enter_context(closing(_bound(settings.http)))
        began = time.monotonic()
        spark = open_session(settings, [lake_at, store.location])
        running.callback(spark.stop)
        seconds = round(time.monotonic() - began, 1)
        _log.info(
            "pipeline.started", lake=str(lake_at), tables=str(store.location), seconds=seconds
        )
        job = Job(spark, lake, store, settings, columns)
        follower = Follower(job)
        running.enter_context(reported(job.progress))
        if listener is not None:
            from tailrace.pipeline.observation import observed

            running.enter_context(observed(follower, listener, partial(has_ended, spark)))
        if options.rebuild:
            job.rebuild()
        follower.run(stop, once=once)
        if options.maintain:
            _log.info("tables.maintained", **maintain(job.lake, job.tables, settings))
    if job.progress.set_aside:
        _log.warning("events.set_aside", count=job.progress.set_aside, consequence=_SET_ASIDE)
    _log.info("pipeline.finished", **counts(job.progress))
    for scope, number in job.progress.missing.items():
        raise PipelineRefused(
            f"{lake.file(scope, number)}: is missing, and later segments are there. All before "
            "it is in the tables, nothing after it. Restore it, then run again"
        )
    return 0


def _bound(http: PipelineHttpSettings) -> socket:
    from tailrace.observe.http import bind  # a tenth of a second, which a short run does not need

    return bind(http.host, http.port)


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
