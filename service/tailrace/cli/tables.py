"""``tailrace tables``: the state of the tables that ``tailrace pipeline`` makes.

Exit codes: 0 shown, 1 tables that cannot be read, 2 wrong usage or configuration.
"""

import argparse
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tailrace.cli.arguments import needs_pipeline
from tailrace.cli.waiting_bar import waiting_bar
from tailrace.observe.terminal_text import UNKNOWN, age, columns

_HEADINGS = (
    *("table", "rows", "files", "size", "history", "published", "behind", "waiting"),
    *("complete", "rescued", "set aside"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "print rows, size, freshness and completeness of each table, from the tables alone"
    status = actions.add_parser("status", help=text, description=f"{text.capitalize()}.")
    status.add_argument("--config", metavar="FILE", help="the configuration: its section pipeline")
    status.add_argument("--tables", metavar="DIR", help="where the tables are")
    status.add_argument(
        "--lake", metavar="DIR", help="the path of the parquet handler: shows what is not read yet"
    )
    status.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Prints the state of the tables."""
    with needs_pipeline("tailrace tables"):
        from tailrace.pipeline import status
        from tailrace.pipeline.options import chosen_tables
        from tailrace.pipeline.segments import LandedLake
    lake, tables = chosen_tables(options)
    with waiting_bar("reading the tables", 30):
        record = status.read(tables, LandedLake.open(lake) if lake else None)
    print(json.dumps(record, indent=2) if options.json else _text(record), end="\n")
    return 0


def _text(record: Mapping[str, Any]) -> str:
    log = record["changes"]
    lines = [f"changes: {log['rows']:,} events in {log['files']:,} files, {_bytes(log['bytes'])}"]
    for scope, lag in (record["lake"] or {}).items():
        line = f"scope {scope}: read through segment {lag['read_segment']} of "
        line += f"{lag['landed_segment']}"
        if lag["events_waiting"]:
            line += f"; {lag['events_waiting']:,} events wait, for {_age(lag['lag_seconds'])}"
        if lag["missing_segment"] is not None:
            line += f"; segment {lag['missing_segment']} is missing"
        lines.append(line)
    if record["set_aside_without_table"]:
        lines.append(f"set aside, without a table: {record['set_aside_without_table']:,} events")
    for table in record["tables"]:
        if rescued := table["rescued_by_field"]:
            counts = ", ".join(f"{field} {count:,}" for field, count in sorted(rescued.items()))
            lines.append(f"{table['table']}: rescued values: {counts}")
        if left_out := table["fields_left_out"]:
            lines.append(f"{table['table']}: in document only: {', '.join(left_out)}")
    return "\n".join([*lines, columns(_HEADINGS, [_row(table) for table in record["tables"]])])[:-1]


def _row(table: Mapping[str, Any]) -> list[str]:
    history, complete = table["history"], "yes"
    if not table["complete"]:
        complete = f"no: {table['reason']}" if table["reason"] else UNKNOWN
    return [
        table["table"],
        f"{table['rows']:,}",
        f"{table['files']:,}",
        _bytes(table["bytes"]),
        f"{history['rows']:,} rows" if history else UNKNOWN,
        table["published_at"] or "never",
        _age(table["lag_seconds"]),
        f"{table['events_waiting']:,}",
        complete,
        f"{table['rescued']:,}",
        f"{table['set_aside']:,}",
    ]


def _age(seconds: float) -> str:
    return age(timedelta(seconds=seconds))


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
