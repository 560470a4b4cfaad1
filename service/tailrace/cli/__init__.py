"""The command line. Every process begins with :func:`main`; ``commands`` has the rest.

The daemon handles signals before it imports anything heavy: until then a signal ends the process.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext

from tailrace.memory import settle_malloc
from tailrace.signals import StopSignals


def main(given: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code; prints one message if something is wrong."""
    arguments = sys.argv[1:] if given is None else list(given)
    signals, is_run = StopSignals(), arguments[:1] == ["run"]
    if is_run:
        settle_malloc()  # before there is a thread
    with signals.listening() if is_run else nullcontext():
        from tailrace.cli import commands

        return commands.main(arguments, signals)
