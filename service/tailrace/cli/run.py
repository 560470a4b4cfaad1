"""``tailrace run``: the daemon, with its log and its last line."""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from tailrace.cli import exit_report
from tailrace.cli.commands import print_error
from tailrace.cli.reading import read_settings
from tailrace.errors import TailraceError, describe
from tailrace.observe import logs
from tailrace.observe.output import Output

if TYPE_CHECKING:
    from tailrace.signals import StopSignals


def run(options: argparse.Namespace, signals: StopSignals) -> int:
    """Follows until it is stopped; ends the process itself."""
    with Output() as output:
        signals.last_resort = replace(signals.last_resort, leave=partial(_leave_start, output))
        code = _follow(options, signals, output)
        # All is closed by then; but a driver's thread that waits for a server would keep us.
        output.leave(code)


def _follow(options: argparse.Namespace, signals: StopSignals, output: Output) -> int:
    # Until the file has said which form logs take: one that suits whoever reads them.
    style = "console" if sys.stderr.isatty() else "json"
    logs.configure("info", style)
    try:
        from tailrace import app

        if not signals.received:
            settings = read_settings(options)
            style = settings.logging.format
            logs.configure(settings.logging.level, style)
            for warning in settings.deprecations:
                structlog.get_logger().warning("configuration.deprecated", reason=warning)
        if signals.received:
            structlog.get_logger().info("service.stopped")
            return app.FINISHED
        process = app.Process(signals, output)
        return anyio.run(app.serve, settings, process, backend_options=_event_loop())
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        # Raised in a task of a handler's own, where the delivery cannot see it, or asked of all
        # tasks by one: signals are noted, and raise nothing.
        print(f"tailrace: a handler has ended the process: {describe(error)}", file=sys.stderr)
        return 1
    except TailraceError as error:
        return print_error(error) if style == "console" else exit_report.log(error)
    except Exception as error:  # noqa: BLE001 - the process ends with it
        if style == "console":
            traceback.print_exception(error)
            return 1
        return exit_report.log(error)


def _leave_start(output: Output) -> None:
    """A signal came, and the start hangs: nothing is followed yet, so there is nothing to drain."""
    structlog.get_logger().info("service.stopped", reason="the start does not end: leaving it")
    output.leave(0)


def _event_loop() -> dict[str, Any]:
    """For :func:`anyio.run`: uvloop where it is to be had, asyncio's own loop elsewhere.

    On an idle stream a sixth of the time from the server to the handler is the loop's.
    """
    return {"use_uvloop": find_spec("uvloop") is not None}
