"""From the command line to a run: once, or until a signal stops it."""

import argparse
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import structlog

from tailrace.config import PipelineSettings
from tailrace.errors import ConfigurationError, PipelineRefused, Problem
from tailrace.pipeline.job import Job
from tailrace.pipeline.location import Location
from tailrace.pipeline.maintenance import maintain
from tailrace.pipeline.segments import LandedLake
from tailrace.pipeline.session import open_session

_log = structlog.get_logger()

_MAINTENANCE_SECONDS = 3600.0
"""The time between two maintenances of a pipeline that keeps running."""

_SET_ASIDE = (
    "changes has them, current and history do not: updates that cannot be applied, and changes "
    "that a scope's pipeline left without namespace or document key. quality counts them"
)
_INCOMPLETE = (
    "current and history lack documents that were there before and did not change since; the "
    "property tailrace.complete of a table, and quality, say so too"
)
_NAMED = 20
"""Tables that a warning names."""


def run(options: argparse.Namespace) -> int:
    """Runs the pipeline; exit code 0: all is done, or it was stopped in order."""
    settings = _settings(options)
    assert settings.lake is not None and settings.tables is not None  # noqa: S101, PT018
    lake = LandedLake.open(Location.of(settings.lake))
    tables = Location.of(settings.tables)
    with _stop_signals() as stop:
        began = time.monotonic()
        spark = open_session(settings)
        seconds = round(time.monotonic() - began, 1)
        _log.info("pipeline.started", lake=settings.lake, tables=settings.tables, seconds=seconds)
        try:
            report = _Report()
            # Without a file there is no declaration: the one in the tables is kept.
            columns = settings.columns if options.config else None
            job = Job(spark, lake, tables, settings, columns, report)
            if options.rebuild:
                job.rebuild()
            if options.rebuild or options.once:
                job.run_once()
            else:
                _follow(job, stop)
            if options.maintain:
                _maintain(job)
            report.warn_of_incomplete(job)
            if job.progress.set_aside:
                _log.warning(
                    "events.set_aside", count=job.progress.set_aside, consequence=_SET_ASIDE
                )
            _log.info("pipeline.finished", **_counts(job))
        finally:
            spark.stop()
    for scope, number in job.progress.missing.items():
        raise PipelineRefused(
            f"{lake.file(scope, number)}: is missing, and later segments are there. All before "
            "it is in the tables, nothing after it. Restore it, then run again"
        )
    return 0


def _follow(job: Job, stop: threading.Event) -> None:
    """Batch after batch until the stop; a batch that has begun is finished."""
    job.catch_up()
    maintained = time.monotonic()
    missing: dict[str, int] = {}
    while not stop.is_set():
        if job.step():
            continue
        if job.progress.missing != missing:
            missing = dict(job.progress.missing)
            for scope, number in missing.items():
                _log.warning("segment.missing", scope=scope, segment=number)
        job.publish_due()
        if time.monotonic() - maintained >= _MAINTENANCE_SECONDS:
            _maintain(job)
            maintained = time.monotonic()
        stop.wait(job.settings.interval_seconds)
    job.finish()


def _maintain(job: Job) -> None:
    settings = job.settings
    done = maintain(job.lake, job.tables, settings.vacuum_hours, settings.segment_retention_hours)
    _log.info("tables.maintained", compacted_files=done.compacted, removed_files=done.vacuumed,
              removed_segments=done.segments)  # fmt: skip


def _settings(options: argparse.Namespace) -> PipelineSettings:
    """Those of the file, overridden by the command line."""
    settings = PipelineSettings()
    if options.config:
        from tailrace.config import load

        settings = load(options.config).pipeline
    given = {
        "lake": options.lake,
        "tables": options.tables,
        "interval_seconds": options.interval,
        "master": options.master,
    }
    settings = settings.model_copy(update={k: v for k, v in given.items() if v is not None})
    problems = [
        Problem(f"--{name}", f"is needed, here or as pipeline.{name} of the file of --config")
        for name in ("lake", "tables")
        if getattr(settings, name) is None
    ]
    if settings.interval_seconds <= 0:
        problems.append(Problem("--interval", "must be more than 0 seconds"))
    if problems:
        raise ConfigurationError(*problems)
    return settings


class _Report:
    """Logs what each batch did, and names each incomplete table once."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._warned: set[str] = set()

    def __call__(self, job: Job) -> None:
        self.warn_of_incomplete(job)
        now = time.monotonic()
        _log.info("batch.committed", **_counts(job), seconds=round(now - self._began, 1))
        self._began = now

    def warn_of_incomplete(self, job: Job) -> None:
        found = job.progress.incomplete
        new = sorted(found.keys() - self._warned)
        self._warned.update(new)
        if new:
            some = [{"table": name, **found[name]} for name in new[:_NAMED]]
            _log.warning(
                "tables.left_incomplete", count=len(new), tables=some, consequence=_INCOMPLETE
            )


def _counts(job: Job) -> Mapping[str, int]:
    done = job.progress
    names = ("batches", "segments", "events", "published")
    return {name: getattr(done, name) for name in names}


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT end the run after the batch; a second one at once, without the batch."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise SystemExit(3)
        stop.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handle) for number in numbers]
    try:
        yield stop
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)
