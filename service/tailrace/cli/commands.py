"""Runs a command by its name.

A command is a module with ``run(options)``, imported when it is asked for: ``tailrace check``
starts without loading a driver.

Exit codes: 0 stopped, drained and saved, or finished; 1 a failure; 2 usage or configuration;
3 stopped, but not drained or not saved in time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace.cli import arguments
from tailrace.cli.exit_report import print_error
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.signals import StopSignals


def main(given: Sequence[str], signals: StopSignals) -> int:
    """Runs a command; returns the exit code, and prints one message for what is wrong."""
    options = arguments.parser().parse_args(given)
    try:
        if options.command == "run":
            from tailrace.cli import run

            return run.run(options, signals)
        command = import_module(f"tailrace.cli.{options.command.replace('-', '_')}")
        code: int = command.run(options)
        return code
    except TailraceError as error:
        return print_error(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away: nothing more to say
        return 1
