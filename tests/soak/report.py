"""The report of a run: ``python -m tests.soak.report DIR`` makes it again, also meanwhile."""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from tests.bench.report import markdown
from tests.soak.curves import SoakCurve, read_curves, slope, spread
from tests.soak.plan import HOUR, MINUTE, SoakPlan
from tests.soak.sampling import SERVICE
from tests.soak.verifying import DIFFERENCES

MOST_SPREAD = 0.10
"""Of the service's resident memory, once it is warm."""
_WINDOW_SAMPLES = 6
_TOGETHER = ("lag", "GET", "dead letters")
"""Curves of one picture."""
_LEVELS = ("RSS MB", "descriptors", "threads")
"""What should stay at one level."""
_JUDGED_SECONDS = HOUR
"""A shorter run says nothing of growth: its processes are still warming up."""


def problems(plan: SoakPlan, curves: Sequence[SoakCurve], result: Mapping[str, Any]) -> list[str]:
    """What makes a run fail. ``result`` is that of ``result.json``."""
    told = [*result["failures"]]
    for account in result["accounts"]:
        if account["lost"]:
            told.append(f"{account['name']}: {account['lost']} events tell of lost changes")
    for handler, keys in result["unequal"].items():
        if keys:
            told.append(f"{handler}: {len(keys)} documents are not those of the source: {keys[:3]}")
    differences = {kind: result["compared"].get(kind, 0) for kind in DIFFERENCES}
    if any(differences.values()):
        told.append(f"verify tells {differences}")
    if result["dead_letters"]:
        told.append(f"{result['dead_letters']} dead letters")
    grown = memory_spread(plan, curves)
    if result["seconds"] >= _JUDGED_SECONDS and (grown is None or grown > MOST_SPREAD):
        shown = "was not measured" if grown is None else f"moved by {grown:.1%}"
        told.append(f"the service's RSS {shown} from minute {plan.warm / MINUTE:.0f} on")
    return told


def memory_spread(plan: SoakPlan, curves: Sequence[SoakCurve]) -> float | None:
    """How far apart the medians of resident memory are in a process of the service, once warm."""
    return next(
        (
            spread(curve.settled(plan.warm, plan.settling), _WINDOW_SAMPLES * plan.sample_every)
            for curve in curves
            if (curve.process, curve.name) == (SERVICE, "RSS MB")
        ),
        None,
    )


def table(plan: SoakPlan, curves: Sequence[SoakCurve]) -> str:
    """A line for each curve."""
    lines = []
    for curve in curves:
        values = [point.value for point in curve.points]
        settled = curve.settled(plan.warm, plan.settling)
        numbers = min(values), median(values), max(values), slope(settled)
        shown = ["" if number is None else f"{number:,.4g}" for number in numbers]
        apart = spread(settled, _WINDOW_SAMPLES * plan.sample_every)
        apart = apart if curve.name in _LEVELS else None
        lines.append([curve.process, curve.name, *shown, "" if apart is None else f"{apart:.1%}"])
    warm = f"minute {plan.warm / MINUTE:.4g}"
    heads = ["process", "curve", "min", "median", "max"]
    return markdown([*heads, f"an hour, from {warm}", f"apart, from {warm}"], lines)


def text(plan: SoakPlan, curves: Sequence[SoakCurve], result: Mapping[str, Any]) -> str:
    """The whole report as Markdown."""
    told = problems(plan, curves, result)
    apart = memory_spread(plan, curves)
    seconds, written = result["seconds"], result["written"]
    facts = {
        "length": f"{seconds / MINUTE:.1f} of {plan.seconds / MINUTE:.1f} minutes",
        "changes written": f"{written:,}, {written / seconds:,.0f} a second",
        "RSS of the service": "not measured"
        if apart is None
        else f"medians {apart:.1%} apart from minute {plan.warm / MINUTE:.4g} on",
        "exit codes of verify": str(result["verifications"]),
        "ends of verifications": str(result["ended"]),
        "compared by verify": str(result["compared"]),
        "verify had no result": str(result["reasons"]),
        "events": ", ".join(
            f"{account['name']} {account['events']:,} ({account['repeats']:,} again)"
            for account in result["accounts"]
        ),
    }
    happened = defaultdict(int)
    for happening in result["happenings"]:
        happened[happening["what"]] += 1
    images = sorted({_image(curve) for curve in curves})
    return "\n\n".join(
        [
            "# Soak",
            "\n".join(f"- **{problem}**" for problem in told) or "Equal, nothing lost, not grown.",
            markdown(["", ""], [[name, fact] for name, fact in facts.items()]),
            "What was done: " + ", ".join(f"{what} {count}" for what, count in happened.items()),
            "“An hour” is the slope, “apart” the highest over the lowest median of six samples. "
            "Both are within the life of a process, without its samples before an outage.",
            table(plan, curves),
            "\n".join(f"![{name}]({name})" for name in images),
            "## Complaints" if result["complaints"] else "",
            "\n".join(f"- {complaint}" for complaint in result["complaints"]),
        ]
    )


def draw(curves: Sequence[SoakCurve], directory: Path) -> None:
    """An SVG for each kind of curve."""
    images = defaultdict(list)
    for curve in curves:
        images[_image(curve)].append(curve)
    for name, drawn in images.items():
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        axes = figure.subplots()
        for curve in drawn:
            minutes = [point.seconds / MINUTE for point in curve.points]
            label = f"{curve.process}: {curve.name}"
            axes.plot(minutes, [point.value for point in curve.points], label=label, linewidth=0.9)
        axes.set(xlabel="minutes", ylim=(0, None), title=name.removesuffix(".svg"))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(directory / name)


def _image(curve: SoakCurve) -> str:
    kind = next((one for one in _TOGETHER if curve.name.startswith(one)), curve.name)
    return f"{re.sub(r'[^a-z]+', '-', kind.lower()).strip('-')}.svg"


def write_report(directory: Path) -> list[str]:
    """Writes ``report.md`` and the curves; returns what makes the run fail."""
    result = json.loads((directory / "result.json").read_text())
    plan = SoakPlan(result["hours"], result["rate"])
    curves = read_curves(directory / "samples.csv")
    draw(curves, directory)
    (directory / "report.md").write_text(text(plan, curves, result) + "\n")
    return problems(plan, curves, result)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.report", description=__doc__)
    parser.add_argument("directory", type=Path)
    print("\n".join(write_report(parser.parse_args().directory)))


if __name__ == "__main__":
    main()
