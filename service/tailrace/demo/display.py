"""Shows the demo's progress: a status line in a terminal, else a few lines; tables at the end."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

SHOWN_DIFFERENCES = 10


class Display:
    def __init__(self, console: Console, events: int) -> None:
        self._console = console
        self._events = events
        self._next_line = events / 4

    def status(self, text: str) -> Status:
        """A context that shows a spinner and the text if there is a terminal."""
        return self._console.status(Text(text))

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def update(self, status: Status, written: int, delivered: int, lag: float | None) -> None:
        """Shows the progress in the status line; without a terminal, in four lines in all."""
        progress = f"{written} written, {delivered} delivered"
        status.update(progress if lag is None else f"{progress}, lag {lag:.1f} s")
        if not self._console.is_terminal and delivered >= self._next_line:
            self._next_line = delivered + self._events / 4
            self.say(f"  {progress}")

    def figures(self, figures: Mapping[str, str]) -> None:
        table = Table.grid(padding=(0, 2))
        for name, value in figures.items():
            table.add_row(Text(name), Text(value, overflow="fold"))
        self._console.print(table)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Shows rows; if they do not fit, the last column is cut off."""
        table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, expand=True)
        for column in columns:
            table.add_column(column, no_wrap=True, ratio=1 if column == columns[-1] else None)
        for row in rows:
            table.add_row(*map(Text, row))
        self._console.print(table)

    def verdict(self, what: str, documents: int, differences: list[str]) -> None:
        if not differences:
            self.say(f"{what} give exactly the source: {documents} documents.")
            return
        self.say(f"{what} do NOT give the source: {len(differences)} differences")
        for difference in differences[:SHOWN_DIFFERENCES]:
            self.say(f"  {difference}")
