"""``tailrace status``: how the scopes and handlers of the daemon on this machine are.

Exit codes: 0 changes flow in every scope and nothing waits for an operator; 1 a scope or a handler
needs attention, or no daemon answers; 2 wrong usage, configuration or token.
"""

import argparse
import json
import sys

from tailrace.cli.arguments import add_config, daemon_of
from tailrace.cli.status_text import report_of, text_of


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints what the daemon answers, the worst scope first."""
    report = report_of(daemon_of(options.config).get("/status"))
    text = json.dumps(report, indent=2) + "\n" if options.json else text_of(report, sys.stdout)
    print(text, end="")
    return 0 if report["well"] else 1
