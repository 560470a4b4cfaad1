"""The arithmetic of a curve: what it was, how fast it grew, and how far apart it went."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from tests.soak.plan import HOUR


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A sample; ``pid`` tells a process from the one that was started after it."""

    seconds: float
    pid: int
    value: float


@dataclass(frozen=True, slots=True)
class SoakCurve:
    """The samples of one measure of one process, in their order."""

    process: str
    name: str
    points: Sequence[CurvePoint]

    def settled(self, warm: float, settling: float) -> list[CurvePoint]:
        """Those from ``warm`` on, but for the first seconds of each process after another one."""
        begins: dict[int, float] = {}
        for point in self.points:
            begins.setdefault(point.pid, point.seconds)
        return [
            point
            for point in self.points
            if point.seconds >= max(warm, begins[point.pid] + settling)
        ]


def slope(points: Iterable[CurvePoint]) -> float | None:
    """The growth in an hour, by least squares; the level may differ from process to process.

    So a restart, after which a process needs less, does not hide what grows in each.
    """
    by_pid = defaultdict(list)
    for point in points:
        by_pid[point.pid].append(point)
    up = across = 0.0
    for of_one in by_pid.values():
        at = fmean(point.seconds for point in of_one)
        level = fmean(point.value for point in of_one)
        up += sum((point.seconds - at) * (point.value - level) for point in of_one)
        across += sum((point.seconds - at) ** 2 for point in of_one)
    return HOUR * up / across if across else None


def spread(points: Iterable[CurvePoint], window: float) -> float | None:
    """The highest median of a window over the lowest one, minus 1, in the process with the most.

    Two processes are not compared: each has a level of its own, by what it did first.
    """
    windows: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in points:
        windows[point.pid][int(point.seconds / window)].append(point.value)
    medians = [[median(values) for values in of_one.values()] for of_one in windows.values()]
    if not medians or min(map(min, medians)) <= 0:
        return None
    return max(max(of_one) / min(of_one) for of_one in medians) - 1


def read_curves(path: Path) -> list[SoakCurve]:
    """The curves of ``samples.csv``, by process and name. A last line cut short is left out."""
    points = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.reader(file):
            if len(row) == 5 and row[4]:
                seconds, process, pid, name, value = row
                points[process, name].append(CurvePoint(float(seconds), int(pid), float(value)))
    return [SoakCurve(*key, points[key]) for key in sorted(points)]
