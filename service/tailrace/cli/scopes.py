"""``tailrace scopes``: who follows which scope, from the store without a daemon; and its actions.

``release`` takes a lease from its owner, with a greater epoch, so that the owner cannot renew it.

Exit codes: 0 done, 1 the store failed or the state does not allow it, 2 wrong usage or
configuration.
"""

import argparse
from functools import partial
from importlib import import_module
from typing import Any

from tailrace.cli.action_command import ActionCommand
from tailrace.cli.arguments import add_config, add_json
from tailrace.control.action_table import TABLE, find_action


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_config(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    listed = verbs.add_parser("list", help="every scope with its owner; the default")
    listed.add_argument("--json", action="store_true", help="print it as JSON")
    release = verbs.add_parser("release", help="take a scope's lease from its owner, and free it")
    release.add_argument("scope", help="the scope's name")
    release.add_argument("--dry-run", action="store_true", help="say what would change")
    add_json(release)
    for verb in (listed, release):
        add_config(verb, default=argparse.SUPPRESS)
    for row, command in TABLE.items():
        name, _, action = command.partition(" ")
        if name == "scopes":
            verbs.add_parser(action, help="", fill=partial(_fill, row))
    verbs.add_parser("replay", help="", fill=partial(_fill, ""))


def _fill(row: str, verb: argparse.ArgumentParser) -> None:
    """Adds the arguments of an action, whose module is imported only then."""
    command: Any = ActionCommand(find_action(row)) if row else None
    command = command or import_module("tailrace.cli.scope_replay")
    add_config(verb, default=argparse.SUPPRESS)
    command.add_verb(verb)
    verb.set_defaults(perform=command.run)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result."""
    if "perform" not in options:
        options.perform = import_module("tailrace.cli.scope_leases").run
    code: int = options.perform(options)
    return code
