"""Runs a job with a Spark session of its own: once, or until a stop."""

import argparse
import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from socket import socket

import structlog

from tailrace.config.pipeline import PipelineHttpSettings, PipelineSettings
from tailrace.errors import PipelineRefused
from tailrace.pipeline.declaration import Declaration
from tailrace.pipeline.follow import Follower
from tailrace.pipeline.job import Job
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.progress import reported
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import open_session
from tailrace.pipeline.spark_process import has_ended
from tailrace.pipeline.tables import TableStore

_log = structlog.get_logger()

_SET_ASIDE = (
    "changes has them, current and history do not: updates that cannot be applied, and changes "
    "that a scope's pipeline left without namespace or document key. quality counts them"
)


def run(
    options: argparse.Namespace,
    settings: PipelineSettings,
    lake: LandedLake,
    store: TableStore,
    columns: Declaration | None,
    stop: threading.Event,
) -> None:
    """Raises :class:`PipelineRefused`, also if a segment is missing, once all before it is done."""
    once = options.rebuild or options.once
    with ExitStack() as running:
        listener = None if once else running.enter_context(closing(_bound(settings.http)))
        began = time.monotonic()
        spark = open_session(settings, [lake.location, store.location])
        running.callback(spark.stop)
        seconds = round(time.monotonic() - began, 1)
        _log.info(
            "pipeline.started", lake=str(lake.location), tables=str(store.location), seconds=seconds
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
    _log.info("pipeline.finished", **job.progress.counts())
    for scope, number in job.progress.missing.items():
        raise PipelineRefused(
            f"{lake.file(scope, number)}: is missing, and later segments are there. All before "
            "it is in the tables, nothing after it. Restore it, then run again"
        )


def _bound(http: PipelineHttpSettings) -> socket:
    from tailrace.observe.http import bind  # a tenth of a second, which a short run does not need

    return bind(http.host, http.port)
