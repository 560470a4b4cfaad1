"""The port to the tables that a pipeline makes of a lake, which no daemon imports."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class CurrentTable(Protocol):
    """One version of the table with the documents of a collection. Its methods block."""

    @property
    def name(self) -> str:
        """For people, with the version."""

    @property
    def files(self) -> Sequence[str]:
        """Its files, by names that no other content has."""

    @property
    def incomplete(self) -> str:
        """Why documents are missing in it; empty if none are."""

    def segment(self, scope: str) -> int:
        """The last segment of a scope that is in it; -1 for none."""

    def rows(self, name: str) -> Iterable[tuple[str, str | None]]:
        """Document key and document of each row of a file, as canonical Extended JSON."""


class CurrentTables(Protocol):
    """The tables of one lake. Its methods block."""

    def collections(self) -> Sequence[tuple[str, str]]:
        """Database and collection of each table."""

    def published(self, scope: str) -> int:
        """The last segment of a scope that all tables have; -1 for none."""

    def current(self, database: str, collection: str) -> CurrentTable | None:
        """The table of a collection as committed now; ``None`` if there is none."""


OpenTables = Callable[[str], CurrentTables | None]
"""Opens the tables of the lake with this identity; ``None`` if there are none. Blocks."""
