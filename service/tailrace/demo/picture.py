"""A picture of the run: events over time by operation, and how far the service was behind.

Scalable Vector Graphics by hand, a few hundred lines of text that every browser shows: a library
for drawing would be larger than all else here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from xml.sax.saxutils import escape

from tailrace.demo.tables import Change

_WIDTH, _LEFT, _RIGHT = 900, 70, 870
_EVENTS_TOP, _EVENTS_FOOT = 80, 300
_LAG_TOP, _LAG_FOOT = 360, 470
_BINS = 60

# Distinguishable to colour-blind eyes: https://jfly.uni-koeln.de/color/
_COLOURS = {
    "insert": "#0072b2",
    "update": "#e69f00",
    "replace": "#56b4e9",
    "delete": "#d55e00",
    "other": "#999999",
}
_LAG_COLOUR = "#009e73"


@dataclass(frozen=True, slots=True)
class LagSample:
    """What the service said at a moment (seconds since 1970); ``None``: it did not know."""

    at: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class _Axis:
    """Numbers onto a range of pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.begin + share * (self.end - self.begin), 1)


def draw(
    path: Path,
    changes: Sequence[Change],
    lags: Sequence[LagSample],
    restart: tuple[float, float] | None,
) -> None:
    """Writes the picture; ``restart`` is from when to when the service was down."""
    moments = [*(each.at for each in changes), *(each.at for each in lags)] or [0.0]
    begin, end = min(moments), max(moments)
    time = _Axis(begin, end, _LEFT, _RIGHT)
    parts = [
        _text(_LEFT, 30, "Tailrace: what the demo's events did", size=18, weight="600"),
        *_legend(),
        *(_restart(time, restart) if restart else ()),
        *_events(time, changes),
        *_lag(time, lags),
        *_seconds(time, begin, end),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 520" '
        f'font-family="system-ui, sans-serif" fill="#333">'
        f'<rect width="{_WIDTH}" height="520" fill="#fff"/>'
    )
    path.write_text("\n".join([head, *parts, "</svg>", ""]), "utf-8")


def _events(time: _Axis, changes: Sequence[Change]) -> Iterator[str]:
    width = (time.high - time.low) / _BINS or 1.0
    bins: list[Counter[str]] = [Counter() for _ in range(_BINS)]
    for change in changes:
        operation = change.operation if change.operation in _COLOURS else "other"
        bins[min(_BINS - 1, int((change.at - time.low) / width))][operation] += 1
    top = _round_up(max(counts.total() for counts in bins) / width)
    up = _Axis(0, top, _EVENTS_FOOT, _EVENTS_TOP)
    yield from _grid(up, "events a second")
    for number, counts in enumerate(bins):
        left, right = time(time.low + number * width), time(time.low + (number + 1) * width)
        below = 0.0
        for operation, colour in _COLOURS.items():
            if not counts[operation]:
                continue
            foot, head = up(below), up(below + counts[operation] / width)
            below += counts[operation] / width
            yield _box(left, head, max(0.5, right - left - 1), foot - head, colour)


def _lag(time: _Axis, lags: Sequence[LagSample]) -> Iterator[str]:
    top = _round_up(max((each.seconds or 0 for each in lags), default=0))
    up = _Axis(0, top, _LAG_FOOT, _LAG_TOP)
    yield from _grid(up, "lag: seconds behind the server")
    for line in _lines(lags):
        points = " ".join(f"{time(at)},{up(seconds)}" for at, seconds in line)
        yield f'<polyline points="{points}" fill="none" stroke="{_LAG_COLOUR}" stroke-width="2"/>'


def _lines(lags: Iterable[LagSample]) -> Iterator[list[tuple[float, float]]]:
    """Broken where nobody knows."""
    line: list[tuple[float, float]] = []
    for each in lags:
        if each.seconds is not None:
            line.append((each.at, each.seconds))
        elif line:
            yield line
            line = []
    if line:
        yield line


def _restart(time: _Axis, restart: tuple[float, float]) -> Iterator[str]:
    left, right = (time(min(max(moment, time.low), time.high)) for moment in restart)
    yield _box(left, _EVENTS_TOP, max(1.0, right - left), _LAG_FOOT - _EVENTS_TOP, "#eee")
    yield _text(left + 4, _EVENTS_TOP + 14, "the service restarts", size=11, colour="#777")


def _grid(up: _Axis, title: str) -> Iterator[str]:
    yield _text(_LEFT, up.end - 8, title, size=12, colour="#555")
    for share in (0, 0.5, 1):
        value = up.low + share * (up.high - up.low)
        y = up(value)
        yield f'<path d="M{_LEFT} {y}H{_RIGHT}" stroke="#ccc" stroke-width="0.7"/>'
        yield _text(_LEFT - 8, y + 4, f"{value:g}", size=11, anchor="end")


def _seconds(time: _Axis, begin: float, end: float) -> Iterator[str]:
    step = max(1, ceil((end - begin) / 10))
    for second in range(0, int(end - begin) + 1, step):
        yield _text(time(begin + second), _LAG_FOOT + 18, f"{second} s", size=11, anchor="middle")


def _legend() -> Iterator[str]:
    for number, (operation, colour) in enumerate(_COLOURS.items()):
        left = 470 + number * 82
        yield _box(left, 20, 11, 11, colour)
        yield _text(left + 16, 30, operation, size=12)


def _round_up(value: float) -> float:
    """To 1, 2 or 5 of a power of ten: what people read."""
    power = 0.1
    while power < value:
        for factor in (2, 5, 10):
            if power * factor >= value:
                return round(power * factor, 1)
        power *= 10
    return power


def _box(left: float, top: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}"/>'
    )


def _text(
    left: float,
    foot: float,
    text: str,
    *,
    size: int,
    anchor: str = "start",
    weight: str = "400",
    colour: str = "#333",
) -> str:
    return (
        f'<text x="{left:.1f}" y="{foot:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )
