"""The table of commands. A command is a module of its name, which is imported only if it is given.

Exit codes: 0 stopped, drained and saved, or finished; 1 a failure; 2 usage or configuration;
3 stopped, but not drained or not saved in time.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Protocol, cast

from tailrace.cli.arguments import with_lines
from tailrace.cli.help_text import Parser
from tailrace.control.action_table import TABLE, find_action
from tailrace.errors import TailraceError
from tailrace.signals import StopSignals
from tailrace.version import __version__

COMMANDS = {
    "init": "write a working project: a configuration, and a handler with its test",
    "migrate": "write a configuration that continues where another tool stopped",
    "run": "run the daemon",
    "check": "validate the configuration and print it",
    "compat": "ask a server, in a database of its own, what Tailrace needs of servers",
    "handlers": "list the types of handlers that can be used here",
    "health": "ask the daemon on this machine whether it is healthy",
    "status": "show the state of every scope and handler, and the command that helps",
    "reload": "apply the changed configuration in the daemon on this machine",
    "verify": "compare the rows of a destination with the source, by the daemon on this machine",
    "snapshot": "deliver existing documents, by the daemon on this machine",
    "demo": "run everything on one machine, and verify the tables at the end",
    "pipeline": "run the Spark job that turns segments into tables",
    "columns": "propose typed columns of tables, or fill them in all rows",
    "tables": "show the state of the tables: rows, freshness, completeness",
    "scopes": "show which process follows which scope, or free a lease",
    "why": "tell what became of a document: where its last changes are, or why they are not there",
    "checkpoints": "show the stored positions, or reset one that cannot be read",
    "completion": "print a script for a shell, which completes commands and options",
    "dead-letters": "show, replay or discard the events that handlers could not handle",
}
"""Each command with its line of help. The module has the name, with ``_`` for ``-``."""


class Command(Protocol):
    """The module of a command."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Runs the command; returns the exit code. ``options.signals``: :class:`StopSignals`."""


def command(name: str) -> Command:
    """The module of a command, or the action that is one."""
    for row, of in TABLE.items():
        if of == name:
            from tailrace.cli.action_command import ActionCommand

            return ActionCommand(find_action(row))
    return cast(Command, import_module(f"tailrace.cli.{name.replace('-', '_')}"))


def parser() -> Parser:
    """The parser of the command line. A command adds its arguments when they are needed."""
    whole = Parser(
        prog="tailrace",
        description="Follows MongoDB change streams and delivers every change to handlers.",
    )
    whole.add_argument("--version", action="version", version=f"tailrace {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    actions = {name: "" for name in TABLE.values() if name and " " not in name}
    for name, help_text in {**actions, **COMMANDS}.items():
        described = f"{help_text[:1].upper()}{help_text[1:]}."
        commands.add_parser(name, help=help_text, description=described, fill=partial(_fill, name))
    return whole


def _fill(name: str, parser: argparse.ArgumentParser) -> None:
    command(name).add(parser)


def main(arguments: Sequence[str], signals: StopSignals) -> int:
    """Runs a command and returns the exit code; prints one message if something is wrong."""
    options = parser().parse_args(arguments, argparse.Namespace(signals=signals))
    try:
        return command(options.command).run(options)
    except TailraceError as error:
        from tailrace.cli.exit_report import print_error  # here: a log takes long to import

        return print_error(with_lines(error, options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone: print nothing more
        return 1
