"""Results as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]
_NOTHING: Mapping[str, Mapping[str, float]] = {}


def table(rows: Sequence[Document], bounds: Mapping[str, Mapping[str, float]] = _NOTHING) -> str:
    """Markdown: one line a contender, and how many times cheaper than ``watch()`` it is.

    With ``bounds``, how many times it must be, too: by the names of row and base.
    """
    costs = {row["name"]: row["cpu_seconds_per_million"] for row in rows}
    heads = ["", "CPU s per million", "events/s", "x Motor", "x PyMongo", "peak RSS"]
    if bounds:
        heads.append("wanted")
    lines = [heads, ["---"] * len(heads)]
    for row in rows:
        cost = row["cpu_seconds_per_million"]
        cells = [row["label"], f"{cost:.2f}", f"{row['events_per_second']:,.0f}"]
        for base in ("motor", "pymongo"):
            cells.append(f"{costs[base] / cost:.1f}" if base in costs else "")
        cells.append(f"{row['peak_rss_mb']:.0f} MB")
        if bounds:
            wanted = bounds.get(row["name"], {})
            cells.append(", ".join(f"≥ {least:g} x {base}" for base, least in wanted.items()))
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def server_table(rows: Sequence[Document]) -> str:
    """Markdown: what an event costs the client and the server."""
    lines = ["| | client CPU | server CPU | events/s |", "|---|---|---|---|"]
    lines += [
        f"| {row['label']} | {row['client_us']:.1f} µs | {row['server_us']:.1f} µs "
        f"| {row['events_per_second']:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def delays_table(rows: Sequence[Document]) -> str:
    """Markdown: the latency on an idle stream."""
    lines = ["| | p50 | p99 |", "|---|---|---|"]
    lines += [f"| {r['label']} | {r['p50_ms']:.2f} ms | {r['p99_ms']:.2f} ms |" for r in rows]
    return "\n".join(lines)


def machine() -> str:
    """Where it was measured."""
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), "
        f"{platform.python_implementation()} {platform.python_version()}, {platform.system()}"
    )


def write(directory: Path, results: Mapping[str, Any]) -> None:
    """``results.json`` and ``results.png``; what was not measured stays as it was."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "results.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **results}, indent=1) + "\n")
    if "standard" in results:
        _draw(directory / "results.png", results["standard"])


def _draw(path: Path, rows: Sequence[Document]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row["name"] != "drain"]
    costs = [row["cpu_seconds_per_million"] for row in shown]
    labels = [row["label"].replace("`", "") for row in shown]
    colours = ["#9aa4b1" if row["name"] in ("motor", "pymongo") else "#2a7f62" for row in shown]
    figure, axes = pyplot.subplots(figsize=(9, 0.55 * len(shown) + 1), layout="constrained")
    bars = axes.barh(labels, costs, color=colours)
    axes.bar_label(bars, labels=[f"{cost:.1f}" for cost in costs], padding=3)
    axes.set_xscale("log")
    axes.set_xlim(left=0.5, right=max(costs) * 2)
    axes.invert_yaxis()
    axes.set_xlabel("CPU seconds for a million changes (less is better)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
