"""``tailrace completion``: prints what lets a shell complete commands, verbs and options.

Exit codes: 0 printed, 2 wrong usage.
"""

import argparse

from tailrace.cli import commands

_SHELLS = ("bash", "zsh", "fish")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("shell", choices=_SHELLS, help=f"one of: {', '.join(_SHELLS)}")


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    import shtab

    print(shtab.complete(commands.parser().filled(whole=True), shell=options.shell), end="")
    return 0
