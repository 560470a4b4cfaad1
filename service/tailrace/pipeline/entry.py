"""Runs the pipeline from the command line: once, or until a signal stops it."""

import argparse
import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType

import structlog

from tailrace.config import load_pipeline
from tailrace.config.pipeline import PipelineSettings
from tailrace.errors import ConfigurationError, PipelineRefused, Problem
from tailrace.pipeline import declaration
from tailrace.pipeline.job import Job
from tailrace.pipeline.location import Location
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import open_session
from tailrace.pipeline.tables import DeltaStore

_log = structlog.get_logger()

_MAINTENANCE_SECONDS = 3600.0
"""How often a pipeline that keeps running maintains its tables."""

_SET_ASIDE = (
    "changes has them, current and history do not: updates that cannot be applied, and changes "
    "that a scope's pipeline left without namespace or document key. quality counts them"
)
_INCOMPLETE = (
    "current and history lack documents that existed before and have not changed since; the "
    "property tailrace.complete of a table, and quality, say so too"
)
_NAMED = 20
"""How many tables a warning names."""


def run(options: argparse.Namespace) -> int:
    """Runs the pipeline. Exit code 0: all work is done, or a signal stopped it in order."""
    settings, where, tables = _settings(options)
    lake = LandedLake.open(Location.of(where))
    store = DeltaStore(Location.of(tables))
    # Without a file no columns are declared: the declaration in the tables is kept.
    columns = settings.columns if options.config else None
    if columns and not options.rebuild:
        declaration.check(store, lake.identity, columns)
    stop = _stop_on_signals()
    began = time.monotonic()
    spark = open_session(settings)
    seconds = round(time.monotonic() - began, 1)
    _log.info("pipeline.started", lake=where, tables=tables, seconds=seconds)
    try:
        job = Job(spark, lake, store, settings, columns)
        if options.rebuild:
            job.rebuild()
        _follow(job, stop, once=options.rebuild or options.once)
        if options.maintain:
            _log.info("tables.maintained", **maintain(job.lake, job.tables, settings))
        if job.progress.set_aside:
            _log.warning("events.set_aside", count=job.progress.set_aside, consequence=_SET_ASIDE)
        _log.info("pipeline.finished", **_counts(job))
    finally:
        spark.stop()
    for scope, number in job.progress.missing.items():
        raise PipelineRefused(
            f"{lake.file(scope, number)}: is missing, and later segments are there. All before "
            "it is in the tables, nothing after it. Restore it, then run again"
        )
    return 0


def _follow(job: Job, stop: threading.Event, *, once: bool) -> None:
    """Runs batches until the stop, or ``once`` all are done. A batch that has begun is finished."""
    began = maintained = time.monotonic()
    missing: dict[str, int] = {}
    warned: set[str] = set()
    job.catch_up()
    while not stop.is_set():
        if job.step():
            _warn_of_incomplete(job, warned)
            seconds = round(time.monotonic() - began, 1)
            _log.info("batch.committed", **_counts(job), seconds=seconds)
            began = time.monotonic()
            continue
        if once:
            break
        if job.progress.missing != missing:
            missing = dict(job.progress.missing)
            for scope, number in missing.items():
                _log.warning("segment.missing", scope=scope, segment=number)
        if job.is_due():
            job.publish(everything=True)
        if time.monotonic() - maintained >= _MAINTENANCE_SECONDS:
            _log.info("tables.maintained", **maintain(job.lake, job.tables, job.settings))
            maintained = time.monotonic()
        stop.wait(job.settings.interval_seconds)
    job.finish()
    _warn_of_incomplete(job, warned)


def _warn_of_incomplete(job: Job, warned: set[str]) -> None:
    found = job.progress.incomplete
    new = sorted(found.keys() - warned)
    warned.update(new)
    if new:
        some = [{"table": name, **found[name]} for name in new[:_NAMED]]
        _log.warning("tables.left_incomplete", count=len(new), tables=some, consequence=_INCOMPLETE)


def _counts(job: Job) -> Mapping[str, int]:
    done = job.progress
    names = ("batches", "segments", "events", "published")
    return {name: getattr(done, name) for name in names}


def _settings(options: argparse.Namespace) -> tuple[PipelineSettings, str, str]:
    """The settings of the file, the lake and the tables; options override the file."""
    settings = load_pipeline(options.config) if options.config else PipelineSettings()
    lake, tables = options.lake or settings.lake, options.tables or settings.tables
    if lake and tables:
        return settings, lake, tables
    raise ConfigurationError(
        *(
            Problem(f"--{name}", f"is needed, here or as pipeline.{name} of the file of --config")
            for name, value in (("lake", lake), ("tables", tables))
            if not value
        )
    )


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
