"""What a run has done and what is left: counted by the job, and reported every ten seconds."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from tailrace.pipeline.freshness import Waiting

_log = structlog.get_logger()

_REPORT_SECONDS = 10.0
_BAR_SECONDS = 0.5
_WIDTH = 24
"""The width of the bar, in characters."""

IDLE = "idle"


@dataclass(slots=True)
class JobProgress:
    batches: int = 0
    segments: int = 0
    events: int = 0
    published: int = 0
    set_aside: int = 0
    """Events that cannot be applied: they are in the log, and `quality` counts them."""
    missing: dict[str, int] = field(default_factory=dict)
    incomplete: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Incomplete tables, with the reason (:mod:`tailrace.pipeline.completeness`)."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """By table, the events that are landed and not in it; ``changes`` for those not in the log."""
    looked_at: float = field(default_factory=time.time)
    """When the lake was last looked at, in seconds since 1970."""
    stage: str = IDLE
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each stage has taken so far."""
    segments_left: int = 0
    tables_done: int = 0
    """Of the publication that runs, or ran last."""
    tables_left: int = 0

    @contextmanager
    def doing(self, stage: str) -> Iterator[None]:
        """Within this, the run is at a stage."""
        self.stage, began = stage, time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began
            self.stage = IDLE

    def counts(self) -> dict[str, int]:
        """What is done, for the last line of the log."""
        names = ("batches", "segments", "events", "published")
        return {name: getattr(self, name) for name in names}

    def report(self) -> dict[str, Any]:
        """What is done and left, for a line of the log."""
        found: dict[str, Any] = {"stage": self.stage, "events": self.events}
        found |= {"segments": self.segments, "segments_left": self.segments_left}
        if self.tables_left:
            found |= {"tables": self.tables_done, "tables_left": self.tables_left}
        return found

    def bar(self) -> str:
        """The same as a bar: of the segments, or of the tables that are published."""
        done, left = self.segments, self.segments_left
        if self.stage == "publish" and self.tables_left:
            done, left = self.tables_done, self.tables_left
        share = done / max(1, done + left)
        bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
        what = "tables" if self.stage == "publish" and self.tables_left else "segments"
        return (
            f"{self.stage:8} [{bar}] {share:4.0%}  {done:,} of {done + left:,} {what}, "
            f"{self.events:,} events"
        )


@contextmanager
def reported(progress: JobProgress, ended: threading.Event | None = None) -> Iterator[None]:
    """Within this, work that lasts is reported: a line of the log, or a bar in a terminal.

    ``ended`` is set at the end; between two reports it is waited for.
    """
    ended = ended or threading.Event()
    terminal = sys.stderr.isatty()
    worker = threading.Thread(
        target=_show_bar if terminal else _log_lines, args=(progress, ended), daemon=True
    )
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()


def _log_lines(progress: JobProgress, ended: threading.Event) -> None:
    while not ended.wait(_REPORT_SECONDS):
        if progress.stage != IDLE:
            _log.info("pipeline.working", **progress.report())


def _show_bar(progress: JobProgress, ended: threading.Event) -> None:
    """Rewrites one line, and leaves the cursor at its beginning: a line of the log replaces it."""
    while not ended.wait(_BAR_SECONDS):
        if progress.stage != IDLE:
            sys.stderr.write(f"\x1b[2K{progress.bar()}\r")
            sys.stderr.flush()
    sys.stderr.write("\x1b[2K")
    sys.stderr.flush()
