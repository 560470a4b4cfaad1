"""The command line: every command with its arguments, reading of ``--config``, and refusals."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tailrace import __version__
from tailrace.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from tailrace.config import Settings

_CONFIG = os.environ.get("TAILRACE_CONFIG") or "config.yaml"


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line. Parsed options have ``command``."""
    whole = argparse.ArgumentParser(
        prog="tailrace",
        description="Follows MongoDB change streams and hands every change to handlers.",
    )
    whole.add_argument("--version", action="version", version=f"tailrace {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="the daemon")
    _add_config(run)

    check = commands.add_parser("check", help="validate the configuration and print it")
    _add_config(check)
    check.add_argument("--connect", action="store_true", help="try what run needs too")
    check.add_argument(
        "--schema", action="store_true", help="print the configuration's JSON schema for editors"
    )

    handlers = commands.add_parser("handlers", help="the types of handlers that can be used here")
    handlers.add_argument("--json", action="store_true", help="print a JSON array, for programs")

    health = commands.add_parser("health", help="ask the daemon on this machine if it is healthy")
    _add_config(health)
    health.add_argument("--ready", action="store_true", help="/readyz instead of /livez")

    _add_snapshot(commands.add_parser("snapshot", help="deliver existing documents"))

    demo = commands.add_parser("demo", help="everything on one machine, verified at the end")
    demo.add_argument("--events", type=_positive, default=5000, help="about how many changes")
    demo.add_argument("--directory", type=Path, default=Path("demo-data"), help="where it writes")
    demo.add_argument("--uri", help="your own replica set, instead of an embedded server")

    _add_pipeline(commands.add_parser("pipeline", help="the Spark job: turns segments into tables"))
    _add_scopes(commands.add_parser("scopes", help="which process follows which scope"))
    _add_checkpoints(commands.add_parser("checkpoints", help="the stored positions"))
    _add_dead_letters(
        commands.add_parser("dead-letters", help="events that handlers could not handle")
    )
    return whole


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default=_CONFIG, metavar="FILE", help=f"default: {_CONFIG}")


def _add_scopes(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("list", help="every scope with its owner; the default")
    release = verbs.add_parser("release", help="take a scope's lease from its owner, and free it")
    release.add_argument("scope", help="the scope's name")
    release.add_argument("--dry-run", action="store_true", help="say what would change")
    for verb in verbs.choices.values():  # SUPPRESS: else it replaces a --config before the verb
        verb.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS)


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="read the section pipeline of a file")
    parser.add_argument("--lake", metavar="DIR", help="the path of the parquet handler")
    parser.add_argument("--tables", metavar="DIR", help="where the tables are")
    parser.add_argument("--once", action="store_true", help="end when all landed segments are in")
    parser.add_argument("--rebuild", action="store_true", help="rebuild all tables from segments")
    parser.add_argument("--maintain", action="store_true", help="compact and vacuum at the end")


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    start = verbs.add_parser("start", help="deliver the documents that exist now")
    start.add_argument(
        "--collection", action="append", default=[], help="only this collection; may be repeated"
    )
    start.add_argument("--filter", default="", metavar="JSON", help="only documents that match")
    status = verbs.add_parser("status", help="show the progress")
    status.add_argument(
        "--watch", action="store_true", help="show it until the end; exit code 1 if cancelled"
    )
    verbs.add_parser("pause", help="stop reading until resume")
    verbs.add_parser("resume", help="continue a paused snapshot")
    verbs.add_parser("cancel", help="end it; rows already delivered stay")
    for verb in verbs.choices.values():
        verb.add_argument("scope", help="the scope's name")
        _add_config(verb)


def _add_checkpoints(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("list", help="every scope's position")
    show = verbs.add_parser("show", help="one scope's position in full")
    show.add_argument("--json", action="store_true", help="the record as it is stored")
    place = verbs.add_parser(
        "set", help="choose where a scope continues (best with the daemon stopped)"
    )
    place.add_argument("--token", metavar="JSON", help="a resume token as Extended JSON")
    place.add_argument("--token-data", metavar="HEX", help="the _data of a resume token")
    place.add_argument("--at", metavar="TIME", help="ISO 8601 with offset: starts at that second")
    place.add_argument(
        "--after-invalidate", action="store_true", help="the token is that of an invalidate event"
    )
    reset = verbs.add_parser("reset", help="forget a scope's position: it starts at start_at")
    for verb in (show, place, reset):
        verb.add_argument("scope", help="the scope's name")
    for verb in (place, reset):
        verb.add_argument("--dry-run", action="store_true", help="say what would change")
    for verb in verbs.choices.values():
        _add_config(verb)


def _add_dead_letters(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("list", help="the waiting dead letters, oldest first")
    show = verbs.add_parser("show", help="one dead letter with its whole event")
    show.add_argument("id", help="the dead letter's id, as list shows it")
    verbs.add_parser("export", help="one line of JSON per dead letter, for grep and jq")
    replay = verbs.add_parser("replay", help="deliver them to their handlers again, in order")
    discard = verbs.add_parser("discard", help="delete them: their events are never handled")
    for verb, otherwise in (
        (replay, "default: all of --scope and --handler, or all that wait"),
        (discard, "without ids, --scope or --handler is needed: all of these"),
    ):
        verb.add_argument("id", nargs="*", help=f"ids of dead letters; {otherwise}")
        verb.add_argument("--dry-run", action="store_true", help="say what would happen")
    for verb in verbs.choices.values():
        verb.add_argument("--scope", help="only dead letters of this scope")
        verb.add_argument("--handler", help="only dead letters of this handler")
        _add_config(verb)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def read_settings(options: argparse.Namespace) -> Settings:
    """The settings of ``--config``. Python looks for handlers' modules beside that file first."""
    from tailrace.config import load
    from tailrace.handlers.types import handler_models

    settings = load(options.config, handler_models)
    sys.path[:0] = [str(Path(options.config).absolute().parent), ""]
    return settings


def refuse(where: str, message: str) -> NoReturn:
    """Raises :class:`ConfigurationError` with one problem."""
    raise ConfigurationError(Problem(where, message))
