"""Follows the lake: runs batches, publishes what is due, maintains the tables, until a stop."""

import threading
import time
from collections.abc import Mapping

import structlog

from tailrace.errors import PipelineRefused, describe
from tailrace.pipeline.job import Job
from tailrace.pipeline.maintenance import maintain

_log = structlog.get_logger()

_MAINTENANCE_SECONDS = 3600.0
"""How often a pipeline that keeps running maintains its tables."""

_LONGEST_PAUSE_SECONDS = 60.0
"""The longest pause after failures in a row."""

_INCOMPLETE = (
    "current and history lack documents that existed before and have not changed since; the "
    "property tailrace.complete of a table, and quality, say so too"
)
_NAMED = 20
"""How many tables a warning names."""


class Follower:
    """One job, and how its last attempt ended."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.failures = 0
        self.failure = ""
        """Why the last attempt failed; empty if it did not."""
        self._in_a_row = 0
        self._warned: set[str] = set()
        self._missing: Mapping[str, int] = {}
        self._maintained = self._committed = time.monotonic()

    def run(self, stop: threading.Event, *, once: bool) -> None:
        """Runs batches until the stop, or ``once`` all are done; finishes a batch that has begun.

        After its first look at the lake a pipeline that keeps running tries again if a batch fails:
        a store that does not answer may answer later. An error that ``once`` or the first look
        meets is raised, and so are damaged segments and a second pipeline.
        """
        job = self.job
        job.catch_up()
        while not stop.is_set():
            try:
                if self._step():
                    continue
            except PipelineRefused as error:
                if once:
                    raise
                self._failed(error)
                pause = job.settings.interval_seconds * 2**self._in_a_row
                stop.wait(min(pause, _LONGEST_PAUSE_SECONDS))
                continue
            self.failure, self._in_a_row = "", 0
            if once:
                break
            stop.wait(job.settings.interval_seconds)
        job.finish()
        self._warn_of_incomplete()

    def _step(self) -> bool:
        """One batch; without one, what is due. Returns True if there may be another batch."""
        job = self.job
        if job.step():
            self._warn_of_incomplete()
            seconds = round(time.monotonic() - self._committed, 1)
            _log.info("batch.committed", **job.progress.counts(), seconds=seconds)
            self._committed = time.monotonic()
            return True
        self._warn_of_missing()
        if job.schedule.is_due():
            job.publish(everything=False)
        if time.monotonic() - self._maintained >= _MAINTENANCE_SECONDS:
            with job.progress.doing("maintain"):
                done = maintain(job.lake, job.tables, job.settings)
            _log.info("tables.maintained", **done)
            self._maintained = time.monotonic()
        return False

    def _failed(self, error: PipelineRefused) -> None:
        self.failures += 1
        self._in_a_row += 1
        self.failure = describe(error)
        self.job.forget()
        _log.error("batch.failed", reason=self.failure, failures=self._in_a_row)

    def _warn_of_missing(self) -> None:
        missing = dict(self.job.progress.missing)
        if missing != self._missing:
            self._missing = missing
            for scope, number in missing.items():
                _log.warning("segment.missing", scope=scope, segment=number)

    def _warn_of_incomplete(self) -> None:
        found = self.job.progress.incomplete
        new = sorted(found.keys() - self._warned)
        self._warned.update(new)
        if new:
            some = [{"table": name, **found[name]} for name in new[:_NAMED]]
            _log.warning(
                "tables.left_incomplete", count=len(new), tables=some, consequence=_INCOMPLETE
            )
