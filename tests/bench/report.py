"""Results as Markdown tables and as JSON."""

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with one line for each row."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table(rows: Sequence[Document], bounds: Mapping[str, Mapping[str, float]] | None = None) -> str:
    """One line for each contender, with how many times cheaper than ``watch()`` it is.

    With ``bounds``, also how many times cheaper it must be, by the names of row and base.
    """
    costs = {row["name"]: row["cpu_seconds_per_million"] for row in rows}
    heads = ["", "CPU s per million", "events/s", "x Motor", "x PyMongo", "peak RSS"]
    lines = []
    for row in rows:
        cost = row["cpu_seconds_per_million"]
        ratios = [f"{costs[base] / cost:.1f}" for base in ("motor", "pymongo")]
        cells = [row["label"], f"{cost:.2f}", f"{row['events_per_second']:,.0f}", *ratios]
        cells.append(f"{row['peak_rss_mb']:.0f} MB")
        if bounds:
            wanted = bounds[row["name"]].items()
            cells.append(", ".join(f"≥ {least:g} x {base}" for base, least in wanted))
        lines.append(cells)
    return markdown([*heads, "wanted"] if bounds else heads, lines)


def server_table(rows: Sequence[Document]) -> str:
    """What an event costs the client and the server."""
    return markdown(
        ["", "client CPU", "server CPU", "events/s"],
        [
            [
                *(row["label"], f"{row['client_us']:.1f} µs", f"{row['server_us']:.1f} µs"),
                f"{row['events_per_second']:,.0f}",
            ]
            for row in rows
        ],
    )


def delays_table(rows: Sequence[Document]) -> str:
    """The latency on an idle stream."""
    lines = [[row["label"], f"{row['p50_ms']:.2f} ms", f"{row['p99_ms']:.2f} ms"] for row in rows]
    return markdown(["", "p50", "p99"], lines)


def machine() -> str:
    """The machine on which it was measured."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    )


def write(directory: Path, results: Document) -> None:
    """Writes ``results.json``; results that were not measured this time stay."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **results}, indent=1) + "\n")
