"""A log: one table that gets a row for each event, and is never updated."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.destination import FieldMapping, ScopeContext
from tailrace.destinations.postgresql.connection import Connection
from tailrace.destinations.postgresql.names import identifier
from tailrace.destinations.postgresql.nul import HELD, without_nul
from tailrace.destinations.postgresql.statements import LogStatements
from tailrace.destinations.postgresql.table_check import require_columns
from tailrace.destinations.postgresql.tables import made
from tailrace.envelope import messages
from tailrace.errors import PermanentError
from tailrace.event import ChangeEvent
from tailrace.event.layout import SECONDS

Columns = tuple[list[Any], list[Any], list[Any], list[Any], list[Any], list[Any]]


class LogForm:
    """Implements :class:`tailrace.destinations.postgresql.form.StorageForm`."""

    def __init__(
        self,
        schema: str,
        name: str,
        scope: str,
        fields: FieldMapping | None,
        *,
        create: bool,
        replace_nul: bool,
    ) -> None:
        self._table = LogStatements(schema, identifier(name))
        self._scope = scope
        self._fields = fields
        self._create = create
        self._replace_nul = replace_nul

    def rows(self, events: Mapping[int, ChangeEvent], refused: dict[int, str]) -> Columns:
        """The columns of the log."""
        listed = list(events.values())
        mapped = listed if self._fields is None else self._fields.of(listed)
        columns: Columns = ([], [], [], [], [], [])
        ids, operations, namespaces, keys, seconds, texts = columns
        for number, event, message in zip(
            events, listed, messages(mapped, self._scope, "native"), strict=True
        ):
            text = without_nul(message.value or b"null", replace=self._replace_nul)
            if text is None:
                refused[number] = f"it {HELD}: {event.ns}, {event.key_text!s:.120}"
                continue
            namespace = event.ns
            ids.append(message.id)
            operations.append(event.operation_type)
            namespaces.append(None if namespace is None else str(namespace))
            keys.append(event.key_text)
            seconds.append(event.parts[SECONDS])
            texts.append(text)
        return columns

    async def prepare(self, connection: Connection) -> None:
        table = self._table
        await made(connection, table.schema, table.name, table.create, allowed=self._create)
        await require_columns(connection, table)

    async def adapt(
        self, connection: Connection, rows: Any, checked: dict[str, bool], log: Any
    ) -> bool:
        return False

    async def order_matters(
        self, connection: Connection, rows: Columns, checked: dict[str, bool]
    ) -> bool:
        return False  # rows are appended in their order

    async def store(self, connection: Connection, rows: Columns, checked: dict[str, bool]) -> None:
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._table.append, (self._scope, *rows))

    async def apply(
        self,
        connection: Connection,
        scope: ScopeContext,
        event: ChangeEvent,
        checked: dict[str, bool],
    ) -> None:
        refused: dict[int, str] = {}
        rows = self.rows({0: event}, refused)
        if refused:
            raise PermanentError(refused[0])
        await self.store(connection, rows, checked)

    @property
    def automatic_columns(self) -> Mapping[str, Sequence[str]]:
        return {}

    def misfits(self, rows: Columns) -> list[str]:
        return []
