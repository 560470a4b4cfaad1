"""What the two forms of the destination, tables and a log, have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tailrace.destination import ScopeContext
from tailrace.destinations.postgresql.connection import Connection
from tailrace.event import ChangeEvent


class StorageForm(Protocol):
    """How the events of a scope are stored. It has no connection of its own."""

    def rows(self, events: Mapping[int, ChangeEvent], refused: dict[int, str]) -> Any:
        """What is stored for the numbered events: CPU work, perhaps in a thread.

        Puts the reasons for events that cannot be stored into ``refused``.
        """

    async def prepare(self, connection: Connection) -> None:
        """Makes and checks the tables that are known before the first event of the scope."""

    async def adapt(
        self, connection: Connection, rows: Any, checked: dict[str, bool], log: Any
    ) -> bool:
        """Adds columns for rows, without an open transaction; whether the rows must be made again,
        because the columns are others than they were made for."""

    async def order_matters(
        self, connection: Connection, rows: Any, checked: dict[str, bool]
    ) -> bool:
        """Whether the rows must be stored in the order of the stream: their tables change others.

        ``checked``: that, by the table, for those that were checked with this connection.
        """

    async def store(self, connection: Connection, rows: Any, checked: dict[str, bool]) -> None:
        """Stores rows in the open transaction, table by table."""

    async def apply(
        self,
        connection: Connection,
        scope: ScopeContext,
        event: ChangeEvent,
        checked: dict[str, bool],
    ) -> None:
        """Applies an event that is not about a document, in the open transaction."""

    @property
    def automatic_columns(self) -> Mapping[str, Sequence[str]]:
        """The columns that it has made of fields, by table."""

    def misfits(self, rows: Any) -> list[str]:
        """The values that were stored as NULL."""
