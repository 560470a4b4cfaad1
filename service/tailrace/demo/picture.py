"""Draws the run: events per second by operation, and the service's lag."""

from collections.abc import Sequence
from math import nan
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

# Distinguishable to colour-blind eyes: https://jfly.uni-koeln.de/color/
_COLOURS = {
    "insert": "#0072b2",
    "update": "#e69f00",
    "replace": "#56b4e9",
    "delete": "#d55e00",
    "other": "#999999",
}
_LAG_COLOUR = "#009e73"
_BINS = 60


def draw(
    path: Path,
    changes: Sequence[tuple[float, str]],
    lags: Sequence[tuple[float, float | None]],
    restart: tuple[float, float],
) -> None:
    """Draws times and operations of ``changes``, and times and seconds of ``lags`` (``None``:
    unknown, a gap in the line); the service was down from ``restart[0]`` to ``restart[1]``."""
    began = min(at for at, _ in (*changes, *lags))
    end = max(max(at for at, _ in (*changes, *lags)) - began, 0.1)
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    events, lag = figure.subplots(2, sharex=True, height_ratios=[2, 1])

    times: dict[str, list[float]] = {operation: [] for operation in _COLOURS}
    for at, operation in changes:
        times[operation if operation in times else "other"].append(at - began)
    events.hist(
        [*times.values()],
        bins=_BINS,
        range=(0, end),
        weights=[[_BINS / end] * len(each) for each in times.values()],
        stacked=True,
        color=[*_COLOURS.values()],
        label=[*_COLOURS],
    )
    events.set_title("events a second", loc="left")
    events.legend(ncols=len(_COLOURS), loc="lower right", bbox_to_anchor=(1, 1), frameon=False)

    seconds = [nan if seconds is None else seconds for _, seconds in lags]
    lag.plot([at - began for at, _ in lags], seconds, color=_LAG_COLOUR)
    lag.set_title("lag: seconds behind the server", loc="left")
    lag.set(xlim=(0, end), xlabel="seconds", ylim=(0, None))
    for axes in (events, lag):
        axes.axvspan(*(at - began for at in restart), color="#eeeeee", zorder=0)
    middle, text = sum(restart) / 2 - began, "the service restarts"
    events.text(middle, 0.97, text, ha="center", va="top", transform=events.get_xaxis_transform())
    with rc_context({"svg.fonttype": "none"}):  # keeps text as text, not as paths
        figure.savefig(path)
