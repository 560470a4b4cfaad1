"""Compares the rows of tables: those that are held, and those that the server makes of documents.

The server makes the expected rows with the expressions of the statement that stores rows, so types,
rounding and the text of ``jsonb`` are its own. Both come as text in one session.
"""

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import psycopg

from tailrace.destination import (
    ROWS_BYTES,
    DocumentId,
    HeldKey,
    HeldKeys,
    HeldRows,
    Namespace,
    ReadDocuments,
    Row,
    converted,
)
from tailrace.destinations.postgresql.connection import (
    Connection,
    is_of_data,
    outages,
    server_message,
)
from tailrace.destinations.postgresql.positions import PositionsTable
from tailrace.destinations.postgresql.rows import HASHED, HASHED_BYTES, RowColumns, row_id
from tailrace.destinations.postgresql.statements import TableStatements
from tailrace.destinations.postgresql.table_form import TableForm
from tailrace.destinations.postgresql.tables import Registry
from tailrace.errors import BatchTooLarge, Refused
from tailrace.event import ChangeEvent
from tailrace.event.bson import encoded
from tailrace.event.document_key import identity, key_text
from tailrace.event.key import read_key_text
from tailrace.event.layout import NAMESPACE

Rows: TypeAlias = AsyncGenerator[tuple[Any, ...], None]

_BEGIN = b"""
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = '60s';
    SET LOCAL extra_float_digits = 1;
    SET LOCAL bytea_output = 'hex'
"""
"""With these settings the texts of different values differ, whatever the role's own ones are."""

_WHOLE = {13: b"\x07", 9: b"\x12"}
"""By size, how the id of a row begins that is an ObjectId or an integer, as every such one is."""
_BEFORE = {size: encoded(kind + b"_id\0" + bytes(size - 1))[:9] for size, kind in _WHOLE.items()}
"""By size, what comes before such a value in the document ``{_id: …}``."""


class TableComparison:
    """Implements :class:`tailrace.destination.Comparison` with a connection of its own."""

    def __init__(
        self,
        connection: Connection,
        form: TableForm,
        registry: Registry,
        positions: PositionsTable,
    ) -> None:
        self._connection = connection
        self._form = form
        self._registry = registry
        self._positions = positions

    async def expected(self, documents: Sequence[ChangeEvent]) -> Sequence[Row]:
        namespaces = {event.ns for event in documents}
        with outages():
            tables = {each: await self._table(each) for each in namespaces if each is not None}
        rows_of_tables = await converted(partial(self._rows, tables), documents)
        made, refused = dict[bytes, Row](), dict[bytes, str]()
        ids: Sequence[bytes] = ()
        for namespace, rows in rows_of_tables.items():
            ids = rows.ids
            made |= await self._made(tables[namespace], rows.sent, refused)
        if len(ids) != len(documents):  # of several shards, with one _id
            ids = [row_id(each.key or b"", len(each.parts[NAMESPACE] or b"")) for each in documents]
        if refused:
            raise Refused({at: refused[each] for at, each in enumerate(ids) if each in refused})
        return [made[each] for each in ids]

    async def stored(self, collection: Namespace, keys: Sequence[DocumentId]) -> HeldRows:
        ids = [_row_id(key) for key in keys]
        position, held, whole = None, dict[bytes, dict[str, Any]](), True
        async with self._reading():
            position = await self._positions.stored(self._connection)
            table = await self._table(collection)
            if await self._registry.holds(self._connection, table.name, collection):
                held, whole = await self._held(table, ids)
        rows = [held.get(each) for each in ids]
        for key, row in zip(keys, rows, strict=True):
            if row is not None:
                row["key"] = _without_shard_key(row["key"], key_text(key.raw))
        return HeldRows(rows, position, whole=whole)

    async def _held(
        self, table: TableStatements, ids: Sequence[bytes]
    ) -> tuple[dict[bytes, dict[str, Any]], bool]:
        """The rows by their ids, and whether these are all."""
        held, size, names = dict[bytes, dict[str, Any]](), 0, table.compared
        async with (
            self._connection.cursor(binary=True) as cursor,
            aclosing(cast("Rows", cursor.stream(table.held, (ids,)))) as rows,
        ):
            async for row in rows:
                id_, *texts = row
                held[id_] = dict(zip(names, texts, strict=True))
                size += sum(map(len, filter(None, texts)))
                if size >= ROWS_BYTES:
                    break  # which cancels the query
        return held, size < ROWS_BYTES or len(held) == len(ids)

    async def suspects(self, collection: Namespace, read: ReadDocuments) -> Sequence[int]:
        suspects = set[int]()
        documents: Sequence[bytes] = ()
        asked = 0

        async def read_on() -> None:
            nonlocal documents, asked
            documents = await read(held)
            suspects.update(range(asked, asked + len(documents)))
            asked += len(documents)

        async def compare(documents: Sequence[bytes], first: int) -> None:
            equal = await self._equal(table, documents)
            suspects.difference_update(first + at for at in equal)

        try:
            async with self._reading():
                held = HeldRows((), await self._positions.stored(self._connection))
                await read_on()
                table = await self._table(collection)
                if await self._registry.holds(self._connection, table.name, collection):
                    while documents:
                        first = asked - len(documents)
                        await _both(partial(compare, documents, first), read_on)
        except BatchTooLarge:
            if not asked:
                raise
        except psycopg.Error as error:
            if not is_of_data(error):
                raise
        return sorted(suspects)

    async def _equal(self, table: TableStatements, documents: Sequence[bytes]) -> Iterable[int]:
        """The indices of those whose rows are what the server makes of them."""
        rows = await converted(partial(self._form.rows_of, table), documents)
        async with self._connection.cursor(binary=True) as cursor:
            unlike: Any = await (await cursor.execute(table.unlike, rows.sent)).fetchall()
        equal = set(rows.ids).difference(row[0] for row in unlike)
        if len(equal) == len(documents):
            return range(len(documents))
        return [at for at, each in enumerate(documents) if row_id(identity(each, 0)) in equal]

    async def stored_keys(self, collection: Namespace, after: str | None, most: int) -> HeldKeys:
        table, rows = self._form.table_of(collection), list[Any]()
        connection, last = self._connection, bytes.fromhex(after or "")
        with outages(), suppress(psycopg.errors.UndefinedTable):
            if await self._registry.holds(connection, table.name, collection):
                async with connection.cursor(binary=True) as cursor:
                    rows = await (await cursor.execute(table.held_keys, (last, most))).fetchall()
        keys = [held_key_of(found, text or "") for found, text in rows]
        following = rows[-1][0].hex() if len(rows) == most else None
        return HeldKeys([key for key in keys if key is not None], following)

    async def _table(self, namespace: Namespace) -> TableStatements:
        return await self._form.table_now(self._connection, namespace)

    def _rows(
        self, tables: Mapping[Namespace, TableStatements], documents: Sequence[ChangeEvent]
    ) -> Mapping[Namespace, RowColumns]:
        refused: dict[int, str] = {}
        rows = self._form.rows(dict(enumerate(documents)), refused, tables)
        if refused:
            raise Refused(refused)
        return rows

    async def _made(
        self, table: TableStatements, columns: Sequence[Sequence[Any]], refused: dict[bytes, str]
    ) -> dict[bytes, dict[str, Any]]:
        """The rows that the server makes, by their ids, and in ``refused`` why it makes none."""
        ids = columns[0]
        try:
            async with self._transaction():
                return await self._asked(table, table.expected, columns)
        except psycopg.Error as error:
            if not is_of_data(error):
                raise
            if len(ids) == 1:
                refused[ids[0]] = server_message(error)
                return {}
        middle = len(ids) // 2
        first = await self._made(table, [each[:middle] for each in columns], refused)
        return first | await self._made(table, [each[middle:] for each in columns], refused)

    async def _asked(
        self, table: TableStatements, statement: bytes, parameters: Sequence[Any]
    ) -> dict[bytes, dict[str, Any]]:
        """The rows by their ids."""
        async with self._connection.cursor(binary=True) as cursor:
            rows: Any = await (await cursor.execute(statement, parameters)).fetchall()
        names = table.compared
        return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with outages():
            await self._connection.execute(_BEGIN)
            try:
                yield
            except Exception:
                with suppress(psycopg.Error):  # then the connection is of no use
                    await self._connection.execute(b"ROLLBACK")
                raise
            await self._connection.execute(b"COMMIT")

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        """A transaction. It ends where a table is missing: then there are no rows."""
        with suppress(psycopg.errors.UndefinedTable):
            async with self._transaction():
                yield


async def _both(*calls: Callable[[], Awaitable[None]]) -> None:
    """Returns when all have ended, and raises the first of their errors, as it is."""
    errors: list[Exception] = []

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:  # noqa: BLE001 - raised below: the group would wrap it
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    if errors:
        raise errors[0]


def _row_id(key: DocumentId) -> bytes:
    return row_id(identity(key.raw, 0))


def _without_shard_key(text: str | None, alone: str) -> str | None:
    """The ``_id`` ``alone`` if a document key has this one, and more fields."""
    if text is None or text == alone:
        return text
    try:
        fields, expected = json.loads(text), json.loads(alone)
        found = fields["_id"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return text
    return alone if len(fields) > 1 and found == expected["_id"] else text


def held_key_of(row: bytes, text: str) -> HeldKey | None:
    """The key of a row with this id and this text of its document key.

    An id is the ``_id`` itself, as MongoDB compares it, or the hash of a long one: then it is that
    of the text. ``None`` if the text has another one, so that nobody can tell which one it is.
    """
    size = len(row)
    if row[:1] == _WHOLE.get(size):  # by far the most
        return HeldKey(text, DocumentId(_BEFORE[size] + row[1:] + b"\0"))
    if row.startswith(HASHED) and len(row) == HASHED_BYTES:
        try:
            named = DocumentId(read_key_text(text)[1])
        except ValueError:
            return None
        return HeldKey(text, named) if _row_id(named) == row else None
    raw = DocumentId(encoded(row[:1] + b"_id\0" + row[1:]))
    try:
        is_ours = _row_id(raw) == row
    except ValueError:
        is_ours = False
    return HeldKey(text, raw if is_ours else None)
