"""The command line. :func:`main` is where every process begins; ``commands`` has the rest.

The daemon's signals are noted before anything heavy is imported: until then they end the process.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext

from tailrace.signals import StopSignals


def main(given: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code, and prints one message for what is wrong."""
    arguments = sys.argv[1:] if given is None else list(given)
    signals = StopSignals()
    with signals.listening() if arguments[:1] == ["run"] else nullcontext():
        from tailrace.cli import commands

        return commands.main(arguments, signals)
