"""``tailrace compat``: asks a server what Tailrace needs, in a database of its own.

Exit codes: 0 the server has all that every scope needs; 1 it lacks some of that, or the database
could not be dropped; 2 wrong usage, or a server or a user that cannot be asked; 130 and 143
interrupted.
"""

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.cli.arguments import refuse
from tailrace.errors import StartRefused
from tailrace.masking import keep_secret, secrets_of

if TYPE_CHECKING:
    from tailrace.compat.answer import CompatAnswer

_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 3600


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "--uri", required=True, metavar="URI", help="the server; - reads it from standard input"
    )
    parser.add_argument(
        "--driver", choices=("motor", "pymongo"), default="motor", help="default: motor"
    )
    parser.add_argument(
        "--database", default="", metavar="NAME", help="one without collections; it is dropped"
    )
    parser.add_argument("--elections", action="store_true", help="also let the primary step down")
    parser.add_argument(
        "--timeout", type=float, default=20.0, metavar="SECONDS", help="for a question; default: 20"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--output", metavar="FILE", help="write the report as JSON to a file")


def run(options: argparse.Namespace) -> int:
    """Asks every question; prints an answer as soon as it is there."""
    _check(options)
    import anyio
    import structlog

    from tailrace.compat import report
    from tailrace.compat.run import CompatRun, ask_all

    # Lines of a log may have names and addresses.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.getLogger().addHandler(logging.NullHandler())
    uri = sys.stdin.readline().strip() if options.uri == "-" else options.uri
    keep_secret(*secrets_of(uri))
    wanted = CompatRun(uri, options.driver, options.database, options.timeout, options.elections)
    out, answers = sys.stderr if options.json else sys.stdout, list["CompatAnswer"]()

    def answered(answer: "CompatAnswer") -> None:
        answers.append(answer)
        print(report.line(answer), file=out, flush=True)

    stopped_by = failure = None
    try:
        stopped_by = anyio.run(ask_all, wanted, answered)
    except StartRefused as error:
        failure = error  # at the end: every question was asked
    text = json.dumps(report.document(answers, options.driver, complete=not stopped_by), indent=2)
    if options.output:
        Path(options.output).write_text(f"{text}\n")
    if options.json:
        print(text)
    if failure is not None:
        raise failure
    if stopped_by:
        print("interrupted; the database is dropped", file=out)
        return 128 + stopped_by
    missing = report.lacking(answers)
    has = f"the server lacks what every scope needs: {', '.join(missing)}"
    print(has if missing else "the server has all that every scope needs", file=out)
    return 1 if missing else 0


def _check(options: argparse.Namespace) -> None:
    from tailrace.database_names import require_database, require_followed

    try:
        require_followed(require_database(options.database))
    except ValueError as error:
        refuse("--database", str(error))
    if not _SHORTEST_SECONDS <= options.timeout <= _LONGEST_SECONDS:
        refuse("--timeout", f"must be {_SHORTEST_SECONDS:g} to {_LONGEST_SECONDS} seconds")
    if options.output:
        file = Path(options.output)
        if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
            refuse("--output", f"{file} cannot be written")
