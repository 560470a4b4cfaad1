"""``tailrace run``: the daemon, its log, and the last line of that log.

Exit codes: 0 stopped, drained and saved; 1 a failure: the last line of the log says whether a
restart can help; 2 wrong usage or configuration; 3 stopped, but not drained or not saved in time.
"""

import argparse
import asyncio
import sys
import traceback
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import anyio
import structlog

from tailrace.cli import exit_report
from tailrace.cli.arguments import add_config, read_settings, with_lines
from tailrace.cli.document_tables import find_document, open_tables
from tailrace.errors import TailraceError, describe
from tailrace.observe import logs
from tailrace.observe.output import Output
from tailrace.signals import StopSignals
from tailrace.why.lakes_and_tables import PipelineTables


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the daemon until it is stopped, and then ends the process."""
    signals: StopSignals = options.signals
    with Output() as output:
        signals.last_resort = replace(signals.last_resort, leave=partial(_leave_start, output))
        code = _follow(options, signals, output)
        # Everything is closed now. A driver's thread that waits for a server would delay the exit.
        output.leave(code)


def _follow(options: argparse.Namespace, signals: StopSignals, output: Output) -> int:
    # The format until the configuration selects one.
    style = logs.style_of("auto")
    logs.configure("info", style)
    try:
        from tailrace.app import serve
        from tailrace.shutdown import FINISHED

        if not signals.received:
            settings = read_settings(options)
            style = logs.style_of(settings.logging.format)
            logs.configure(settings.logging.level, style)
        if signals.received:
            structlog.get_logger().info("service.stopped")
            return FINISHED
        loop = {"use_uvloop": find_spec("uvloop") is not None}  # saves a sixth of the latency
        return anyio.run(
            serve,
            settings,
            signals,
            output,
            options.config,
            PipelineTables(find_document, open_tables),
            backend_options=loop,
        )
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        # Raised in a task that a handler started, where delivery cannot catch it. Signals do not
        # raise these.
        print(f"tailrace: a handler has ended the process: {describe(error)}", file=sys.stderr)
        return 1
    except TailraceError as error:
        message = with_lines(error, options)
        return exit_report.print_error(message) if style == "console" else exit_report.log(message)
    except Exception as error:  # noqa: BLE001 - the process ends with it
        if style == "console":
            traceback.print_exception(error)
            return 1
        return exit_report.log(error)


def _leave_start(output: Output) -> None:
    """Ends the process after a signal if the start hangs. Nothing needs draining yet."""
    structlog.get_logger().info("service.stopped", reason="the start hangs: the process exits")
    output.leave(0)
