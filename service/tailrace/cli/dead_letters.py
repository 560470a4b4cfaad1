"""``tailrace dead-letters``: the events that handlers could not handle.

``replay`` and ``discard`` ask the daemon on this machine, which uses its open handlers and goes on
meanwhile. Of two at once, the second is refused. The other verbs read the store.

Exit codes: 0 done, 1 a replayed letter failed again, or it was refused, or no daemon runs, 2 usage
or configuration, 130 interrupted.
"""

import argparse

from tailrace.cli.action_command import add_options
from tailrace.cli.arguments import add_config, add_json, client_of, refuse
from tailrace.cli.dead_letters_daemon import through_daemon
from tailrace.config.served import ServedSettings, load_served
from tailrace.control.actions.dead_letters import LetterFilter


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listed = verbs.add_parser("list", help="the waiting dead letters, oldest first")
    show = verbs.add_parser("show", help="one dead letter with its whole event")
    show.add_argument("id", help="the dead letter's id, as list shows it")
    for verb in (listed, show):
        verb.add_argument("--json", action="store_true", help="print a JSON array, with events")
    verbs.add_parser("export", help="one line of JSON per dead letter, for grep and jq")
    replay = verbs.add_parser(
        "replay", help="through the daemon: deliver them to their handlers again, in order"
    )
    discard = verbs.add_parser(
        "discard", help="through the daemon: delete them, so that their events are never handled"
    )
    for verb, otherwise in (
        (replay, "default: all, or those that the options choose"),
        (discard, "without ids: those that the options choose, one of which is needed"),
    ):
        verb.add_argument("id", nargs="*", help=f"ids of dead letters; {otherwise}")
        verb.add_argument("--dry-run", action="store_true", help="say what would happen")
        add_json(verb)
    for verb in verbs.choices.values():
        add_options(verb, LetterFilter, ("ids", "after"))
        add_config(verb)


def run(options: argparse.Namespace) -> int:
    """Runs the verb; returns the exit code."""
    if options.key is not None:
        _require_key(options.key)
    if options.verb in ("replay", "discard"):
        served = load_served(options.config)
        _require_choice(options, served)
        return through_daemon(client_of(served, options.config), options)
    from tailrace.cli import stored_letters

    return stored_letters.run(options)


def _require_key(key: str) -> None:
    from tailrace.event.key import read_key  # here: it takes long, and most commands have no key

    try:
        read_key(key)
    except ValueError as error:
        refuse("--key", str(error))


def _require_choice(options: argparse.Namespace, served: ServedSettings) -> None:
    """Refuses a replay to an unknown handler, and a discard of nothing in particular."""
    said = (options.id, options.scope, options.handler, options.key, options.error)
    if options.verb == "discard" and not any(said):
        refuse("", "say which dead letters: by their ids, --scope, --handler, --key or --error")
    if options.verb == "replay" and options.handler not in (None, *served.handler_names):
        refuse(f"handler {options.handler!r}", "is not in the configuration")
