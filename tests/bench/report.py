"""Results as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]


def table(rows: Sequence[Document], bounds: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: one line a contender, and how many times cheaper than ``watch()`` it is."""
    costs = {row["name"]: row["cpu_seconds_per_million"] for row in rows}
    lines = [
        "| | CPU s per million | events/s | x Motor | x PyMongo | peak RSS | wanted |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = row["cpu_seconds_per_million"]
        wanted = bounds.get(row["name"], {})
        ratios = [
            f"{costs[base] / cost:.1f}" if base in costs else "" for base in ("motor", "pymongo")
        ]
        lines.append(
            f"| {row['label']} | {cost:.2f} | {row['events_per_second']:,.0f} | {ratios[0]} "
            f"| {ratios[1]} | {row['peak_rss_mb']:.0f} MB "
            f"| {', '.join(f'≥ {least:g} x {base}' for base, least in wanted.items())} |"
        )
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
    """``results.json`` and ``results.png``, replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
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
