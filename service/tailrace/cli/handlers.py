"""``tailrace handlers``: the types of handlers that a configuration can use here.

Exit codes: 0 listed, also if a type of another package is broken (a line says why).
"""

import argparse
import json
import sys
from dataclasses import asdict

from tailrace.handlers.types import ListedType, listed_types
from tailrace.observe.terminal_text import columns

_HEADINGS = ("TYPE", "INSTALLED", "NEEDS", "FROM", "DOES")


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print a JSON array, for programs")


def run(options: argparse.Namespace) -> int:
    """Prints the types, and a warning for each that is broken."""
    types = list(listed_types())
    for kind in types:
        if kind.broken:
            print(f"tailrace: warning: {kind.broken}", file=sys.stderr)
    if options.json:
        print(json.dumps([_record(kind) for kind in types], indent=2, ensure_ascii=False))
    else:
        rows = [_row(kind) for kind in types if not kind.broken]
        print(columns(_HEADINGS, rows), end="")
    return 0


def _record(of: ListedType) -> dict[str, object]:
    return asdict(of) | {"installed": not (of.missing or of.broken)}


def _row(of: ListedType) -> tuple[str, ...]:
    installed = f"no: {of.install or ', '.join(of.missing)}" if of.missing else "yes"
    return of.name, installed, ", ".join(of.needs) or "nothing", of.package, of.summary
