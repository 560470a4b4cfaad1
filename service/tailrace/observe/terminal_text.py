"""Formats text for operators: tables, times and durations, and colours in a terminal."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import IntEnum
from itertools import pairwise
from typing import TextIO

from tailrace.observe.colours import shows_colours

UNKNOWN = "-"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, or that hide text in it."""


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
    listed = [*pairs]
    width = max([12, *(len(name) for name, _ in listed)]) + 1
    return "".join(f"  {name + ':':<{width}} {value}\n" for name, value in listed)


def age(span: timedelta) -> str:
    """A duration in its two largest units; a negative one (clocks differ) counts as 0 s."""
    seconds = max(0, int(span.total_seconds()))
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    for (name, size), (lesser, part) in pairwise(units):
        if seconds >= size:
            return f"{seconds // size}{name} {seconds % size // part}{lesser}"
    return f"{seconds}s"


class Colour(IntEnum):
    """The colours of a terminal (ECMA-48, SGR 31 to 34)."""

    RED = 31
    GREEN = 32
    YELLOW = 33
    BLUE = 34


def paint(text: str, colour: Colour, out: TextIO) -> str:
    """The text in a colour, if ``out`` shows colours."""
    if not shows_colours(out):
        return text
    return f"\x1b[{colour.value}m{text}\x1b[0m"


def printable(text: str) -> str:
    """The text in one line, with control characters escaped."""
    return CONTROL.sub(escaped, " ".join(text.split()))


def escaped(match: re.Match[str]) -> str:
    """A control character as its escape in JSON."""
    return f"\\u{ord(match[0]):04x}"
