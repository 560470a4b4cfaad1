"""What the person in front of the demo sees: two bars in a terminal, a few lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

SHOWN_DIFFERENCES = 10

_WIDEST = 24
"""Characters of a column; the last may have more."""


class Display:
    """Progress while the demo runs, its figures and tables at the end."""

    def __init__(self, console: Console, events: int) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )
        self._written = self._progress.add_task("written", total=events, note="")
        self._delivered = self._progress.add_task("delivered", total=events, note="")
        self._events = events
        self._next_line = 0.25

    @contextmanager
    def live(self) -> Iterator[None]:
        """Shows the bars for the time of the block, where there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._progress:
            yield

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Shows a spinner for the time of the block, where there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(Text(text)):
            yield

    def say(self, text: str) -> None:
        """One line about what happens now."""
        self._progress.console.print(Text(text))

    def update(self, written: int, delivered: int, lag_seconds: float | None) -> None:
        """How far both sides are."""
        total = max(self._events, written)
        note = "" if lag_seconds is None else f"lag {lag_seconds:.1f} s"
        self._progress.update(self._written, completed=written, total=total)
        self._progress.update(
            self._delivered, completed=min(delivered, total), total=total, note=note
        )
        if not self._console.is_terminal and delivered >= self._next_line * self._events:
            self._next_line = delivered // (self._events / 4) * 0.25 + 0.25
            self.say(f"  {written} written, {delivered} delivered")

    def figures(self, figures: Mapping[str, str]) -> None:
        """Names and values, one a line."""
        table = Table.grid(padding=(0, 2))
        for name, value in figures.items():
            table.add_row(Text(name), Text(value, overflow="fold"))
        self._console.print(table)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Some rows; where they do not fit, the last column is cut off."""
        table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
        *firm, last = columns
        for number, column in enumerate(firm):
            width = min(_WIDEST, max(len(row[number]) for row in [columns, *rows]))
            table.add_column(column, no_wrap=True, min_width=width, max_width=width)
        table.add_column(last, no_wrap=True)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def verdict(self, what: str, documents: int, differences: list[str]) -> None:
        """Whether something gives the source."""
        if not differences:
            self.say(f"{what} give exactly the source: {documents} documents.")
            return
        self.say(f"{what} do NOT give the source: {len(differences)} differences")
        for difference in differences[:SHOWN_DIFFERENCES]:
            self.say(f"  {difference}")
