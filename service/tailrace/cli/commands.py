"""Every command by its name, and the one message for what is wrong with it.

A command is a module of its own with ``run(options)``, imported when it is asked for:
``tailrace check`` starts without loading a driver.

Exit codes: 0 stopped, drained and saved, or finished; 1 a failure; 2 usage or configuration;
3 stopped, but not drained or not saved in time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.cli import arguments
from tailrace.errors import ConfigurationError, TailraceError, describe

if TYPE_CHECKING:
    from tailrace.signals import StopSignals


def main(given: Sequence[str], signals: StopSignals) -> int:
    """Runs a command; returns the exit code, and prints one message for what is wrong."""
    parser = arguments.parser()
    options = parser.parse_args(given)
    if options.command is None:
        return _version(parser, options)
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


def print_error(error: TailraceError) -> int:
    """Prints what is wrong to standard error; returns the exit code."""
    if not isinstance(error, ConfigurationError):
        print(f"tailrace: {describe(error)}", file=sys.stderr)
        return 1
    head = f"tailrace: {error.source}: " if error.source else "tailrace: "
    if len(error.problems) == 1:
        print(f"{head}{error.problems[0]}", file=sys.stderr)
        return 2
    print(f"{head}{len(error.problems)} problems", file=sys.stderr)
    for problem in error.problems:
        print(f"  {problem}", file=sys.stderr)
    return 2


def _version(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.version:
        print(f"tailrace {__version__}")
        return 0
    parser.print_usage(sys.stderr)
    return 2
