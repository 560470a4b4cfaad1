"""``tailrace columns``: proposes typed columns, and rebuilds tables with the declared ones.

Exit codes: 0 done, 1 tables that cannot be read or written, 2 wrong usage or configuration.
"""

import argparse
import json
import sys

from ruamel.yaml import YAML

from tailrace.cli.arguments import needs_pipeline, refuse
from tailrace.cli.waiting_bar import waiting_bar

_REPUBLISH_SECONDS = 600.0
"""What the bar takes as the longest time until the first rows are written."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    suggest = verbs.add_parser("suggest", help="propose a declaration from what the tables hold")
    suggest.add_argument(
        "--rows",
        type=int,
        default=100_000,
        metavar="N",
        help="how many documents of a collection are read; default: 100000",
    )
    suggest.add_argument("--json", action="store_true", help="print JSON in place of YAML")
    republish = verbs.add_parser(
        "republish", help="fill declared columns in all rows, and drop the others (best with the "
        "pipeline stopped)"
    )  # fmt: skip
    for verb in (suggest, republish):
        verb.add_argument("--config", metavar="FILE", help="the configuration: section pipeline")
        verb.add_argument("--tables", metavar="DIR", help="where the tables are")
        verb.add_argument(
            "--collection",
            action="append",
            default=[],
            metavar="DATABASE.COLLECTION",
            help="only this collection; may be repeated",
        )


def run(options: argparse.Namespace) -> int:
    """Prints the proposal as YAML, or the progress of the publication."""
    with needs_pipeline("tailrace columns"):
        from tailrace.pipeline import column_commands
    for name in options.collection:
        if not all(name.partition(".")):
            refuse("--collection", f"must be written database.collection, not {name!r}")
    if options.verb == "republish":
        with waiting_bar("rebuilding tables", _REPUBLISH_SECONDS) as bar:

            def report(line: str, share: float | None) -> None:
                bar.share = share
                bar.print(line, sys.stderr)

            return column_commands.republish_columns(options, report)
    if options.rows <= 0:
        refuse("--rows", f"must be greater than 0, not {options.rows}")
    if options.json:
        with waiting_bar("reading the documents", 60):
            lines = "\n".join(column_commands.suggested(options))
        print(json.dumps(YAML(typ="safe").load(lines), indent=2))
        return 0
    for line in column_commands.suggested(options):
        print(line)
    return 0
