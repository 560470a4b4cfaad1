"""``tailrace scopes``: who follows which scope, from the store without a daemon; and its actions.

``release`` takes a lease from its owner, with a greater epoch, so that the owner cannot renew it.

Exit codes: 0 done, 1 the store failed or the state does not allow it, 2 wrong usage or
configuration.
"""

import argparse
from functools import partial
from typing import Any

from tailrace.cli.action_command import ActionCommand
from tailrace.cli.arguments import add_config, add_json
from tailrace.cli.waiting_bar import waiting_bar
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
    _add_config(listed)
    _add_config(release)
    for row, command in TABLE.items():
        if command.startswith("scopes "):
            verbs.add_parser(
                command.removeprefix("scopes "), help="", fill=partial(_add_action, row)
            )
    verbs.add_parser("replay", help="", fill=_add_replay)


def _add_action(row: str, verb: argparse.ArgumentParser) -> None:
    """Adds the arguments of an action, whose module is imported only then."""
    _add_config(verb)
    command = ActionCommand(find_action(row))
    command.add_verb(verb)
    verb.set_defaults(perform=command.run)


def _add_replay(verb: argparse.ArgumentParser) -> None:
    from tailrace.cli import scope_replay

    _add_config(verb)
    scope_replay.add(verb)
    verb.set_defaults(perform=scope_replay.run)


def _add_config(verb: argparse.ArgumentParser) -> None:
    add_config(verb, default=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Runs the verb, and prints the result."""
    if (perform := getattr(options, "perform", None)) is not None:
        code: int = perform(options)
        return code
    import anyio

    from tailrace.cli.scope_leases import answer

    with waiting_bar("asking", 30):
        text: Any = anyio.run(answer, options)
    print(text, end="")
    return 0
