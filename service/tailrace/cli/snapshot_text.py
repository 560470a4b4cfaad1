"""A snapshot's progress as text, with a bar for each collection."""

import shutil
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TextIO

from tailrace.observe.terminal_text import age, printable

_WIDTH = 24
"""The width of a bar, in characters."""
_QUIET_SECONDS = 10.0
"""The time between two reports if the output is not a terminal."""


def lines(snapshot: Mapping[str, Any] | None, most: int | None = None) -> list[str]:
    """A head, and a line for each collection: at most ``most`` lines, unfinished ones first."""
    if snapshot is None:
        return ["the scope has had no snapshot"]
    why = f": {printable(snapshot['reason'])}" if snapshot["reason"] else ""
    head = f"snapshot {snapshot['id']} ({snapshot['mode']}) is {snapshot['state']}{why}"
    collections = snapshot["collections"]
    if len(collections) > 1:
        head += f"; {_progress(snapshot, snapshot)}"
    left_out = 0
    if most is not None and len(collections) + 1 > most:
        collections = sorted(collections, key=lambda row: bool(row["state"] != "reading"))
        left_out = len(collections) + 2 - most
        collections = collections[: len(collections) - left_out]
    shown = [head, *(_line(snapshot, row) for row in collections)]
    return [*shown, f"  and {left_out} more"] if left_out else shown


def _line(snapshot: Mapping[str, Any], of: Mapping[str, Any]) -> str:
    total = of["scanned"] + of["remaining"]
    share = 1.0 if of["state"] == "done" else min(of["scanned"] / max(total, of["estimate"], 1), 1)
    bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
    state = of["state"] + (f": {printable(of['reason'])}" if of["reason"] else "")
    name = printable(of["collection"])
    return f"  {name}  [{bar}] {share:4.0%}  {_progress(snapshot, of)}  {state}"


def _progress(snapshot: Mapping[str, Any], of: Mapping[str, Any]) -> str:
    """How many documents are read, of about how many, and the rate."""
    about = f"of about {of['scanned'] + of['remaining']:,}"
    shown = f"{of['scanned']:,} {about if of['remaining'] else 'documents'}"
    if snapshot["filter"]:
        shown += f", {of['documents']:,} match"
    if of["documents_per_second"]:
        shown += f"  {of['documents_per_second']:,.0f}/s"
    if of["seconds_left"]:
        shown += f", {age(timedelta(seconds=of['seconds_left']))} left"
    return shown


class SnapshotDisplay:
    """Shows successive reports: in place in a terminal, else as more lines, at a lower rate."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0
        self._not_before = 0.0

    def show(self, snapshot: Mapping[str, Any] | None, *, last: bool) -> None:
        """Shows the current progress. The ``last`` report is always shown, and in full."""
        if self._out.isatty():
            self._draw(snapshot, last=last)
        elif last or time.monotonic() >= self._not_before:
            self._not_before = time.monotonic() + _QUIET_SECONDS
            self._out.write("".join(f"{line}\n" for line in lines(snapshot)))
        self._out.flush()

    def _draw(self, snapshot: Mapping[str, Any] | None, *, last: bool) -> None:
        columns, rows = shutil.get_terminal_size()
        shown = lines(snapshot) if last else lines(snapshot, max(rows - 1, 3))
        if not last:  # a wrapped line would count as two when the cursor goes up
            shown = [line if len(line) < columns else f"{line[: columns - 2]}…" for line in shown]
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}F\x1b[J")
        self._out.write("".join(f"{line}\n" for line in shown))
        self._drawn = len(shown)
