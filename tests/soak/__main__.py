"""Runs for hours and writes a report into a directory: ``report.md``, curves, and the samples.

Exit code 1: a change was lost, a destination is not equal to the source, or the service's memory
has grown. Ctrl-C (or SIGTERM) ends the run early, with a report of what was until then; once more,
it ends the comparison at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from tests.soak.plan import SoakPlan
from tests.soak.report import write_report
from tests.soak.soak import SoakRun


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="changes a second")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=("restart", "election", "snapshot", "outage"),
        help="leave this out, as to see what grows in a process that is never restarted",
    )
    parser.add_argument("--report", type=Path, default=Path("soak-report"), metavar="DIR")
    options = parser.parse_args()
    options.report.mkdir(parents=True, exist_ok=True)
    # Ctrl-C reaches all processes of the terminal's group: the servers must not be among them.
    if child := os.fork():
        return _outcome(child)
    os.setsid()
    plan = SoakPlan(options.hours, options.rate, tuple(options.without))
    run = SoakRun(plan, options.report.resolve())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: run.interrupted.set())
    run.run()
    told = write_report(options.report)
    print("\n".join(told) or "equal, nothing lost, not grown", flush=True)
    return 1 if told else 0


def _outcome(child: int) -> int:
    """Tells the child of signals; its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGINT))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
