"""``tailrace health``: asks the daemon on this machine.

Exit codes: 0 healthy, 1 not healthy or no answer, 2 wrong usage or configuration.
"""

import argparse
import json
import sys

from tailrace.cli.arguments import add_config, daemon_of
from tailrace.observe import health_check


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("--ready", action="store_true", help="ask /readyz instead of /livez")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the answer."""
    client = daemon_of(options.config)
    path = "/readyz" if options.ready else "/livez"
    well, answer = health_check.ask(client.host, client.port, path, token=client.token)
    if options.json:
        print(json.dumps({"well": well, "answer": answer.splitlines()}, indent=2))
        return 0 if well else 1
    print(answer, file=sys.stdout if well else sys.stderr)
    return 0 if well else 1
