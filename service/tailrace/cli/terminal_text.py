"""Formats text for operators: tables, times and durations."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

UNKNOWN = "-"


def columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One line per row under the headings, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (headings, *rows)
    )
    return "\n".join(lines) + "\n"


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """One line for each name and its value."""
    return "".join(f"  {name + ':':<14}{value}\n" for name, value in pairs)


def iso(moment: datetime) -> str:
    """A time in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def age(span: timedelta) -> str:
    """A duration in its two largest units; a negative one (clocks differ) counts as 0 s."""
    seconds = max(0, int(span.total_seconds()))
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for (name, size), (lesser, part) in pairwise(units):
        if seconds >= size:
            return f"{seconds // size}{name} {seconds % size // part}{lesser}"
    return f"{seconds}s"
