"""What a run shows while it works: lines of the log, or a bar in a terminal."""

import os
import sys
import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from tailrace.pipeline.progress import JobProgress, reported


class Moments(threading.Event):
    """The end of a run, with steps of its work instead of time between two reports."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.asked: list[float | None] = []
        self.all_done = threading.Event()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._steps:
            self.all_done.set()
            return super().wait()
        self.asked.append(timeout)
        self._steps.pop(0)()
        return False


def work(progress: JobProgress) -> Moments:
    """Half of the segments are read; then nothing is done; then one of four tables is published."""

    def read() -> None:
        progress.stage, progress.segments, progress.segments_left = "changes", 2, 2
        progress.events = 12_345

    def publish() -> None:
        progress.stage, progress.tables_done, progress.tables_left = "publish", 1, 3

    return Moments(read, lambda: setattr(progress, "stage", "idle"), publish)


def test_a_line_each_ten_seconds_says_what_is_done_and_left() -> None:
    progress = JobProgress()
    moments = work(progress)
    with capture_logs() as lines, reported(progress, moments):
        assert moments.all_done.wait(30)
    assert moments.asked == [10, 10, 10]
    done = {"events": 12_345, "segments": 2, "segments_left": 2}
    line = {"event": "pipeline.working", "log_level": "info", **done}
    assert lines == [
        {**line, "stage": "changes"},
        {**line, "stage": "publish", "tables": 1, "tables_left": 3},
    ]


def test_a_terminal_shows_one_bar_and_nothing_of_it_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = JobProgress()
    moments = work(progress)
    screen, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with capture_logs() as lines, reported(progress, moments):
            assert moments.all_done.wait(30)
        shown = os.read(screen, 10_000).decode()
        monkeypatch.undo()
    os.close(screen)
    assert lines == []
    assert moments.asked == [0.5] * 3
    clear, half, quarter = "\x1b[2K", "#" * 12 + "." * 12, "#" * 6 + "." * 18
    assert shown == (
        f"{clear}changes  [{half}]  50%  2 of 4 segments, 12,345 events\r"
        f"{clear}publish  [{quarter}]  25%  1 of 4 tables, 12,345 events\r"
        f"{clear}"
    )
