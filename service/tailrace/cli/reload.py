"""``tailrace reload``: the daemon on this machine applies what has changed in its configuration.

Exit codes: 0 applied or, with ``--dry-run``, told; 1 refused or no daemon; 2 wrong usage, a wrong
token, or a mistake in the configuration.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tailrace.cli.arguments import add_config, daemon_of
from tailrace.cli.terminal_text import columns
from tailrace.cli.waiting_bar import waiting_bar

_SECONDS = 60.0
"""How long the answer may take: new handlers are opened, and changed scopes drained."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would change")
    parser.add_argument("--json", action="store_true", help="print the daemon's answer")


def run(options: argparse.Namespace) -> int:
    """Asks the daemon, and prints what it has changed."""
    client = daemon_of(options.config)
    with waiting_bar("reloading", _SECONDS):
        answer = client.act("/reload", {"dry_run": options.dry_run}, _SECONDS)
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    print(columns(("PART", "NAME", "EFFECT", "BECAUSE"), list(_rows(answer))), end="")
    print(answer["message"])
    return 0


def _rows(answer: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, change in answer["scopes"].items():
        yield "scope", name, change["effect"], ", ".join(change["because"])
    for name, effect in answer["handlers"].items():
        yield "handler", name, effect, ""
