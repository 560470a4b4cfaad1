"""A table per collection: rows follow the documents, and DDL by policy."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import psycopg
from bson.timestamp import Timestamp

from tailrace.destination import (
    Rename,
    ScopeContext,
    SnapshotBarrier,
    Template,
    followed_collections,
)
from tailrace.destinations.postgresql.automatic_columns import AutomaticColumns
from tailrace.destinations.postgresql.connection import Connection, transaction
from tailrace.destinations.postgresql.known_tables import KnownTables
from tailrace.destinations.postgresql.names import table_name
from tailrace.destinations.postgresql.rows import RowColumns, RowMaker, row_id
from tailrace.destinations.postgresql.statements import TableStatements
from tailrace.destinations.postgresql.table_check import order_matters, require_columns
from tailrace.destinations.postgresql.tables import Registry, lock_names, made
from tailrace.errors import PermanentError
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.cluster_position import position
from tailrace.event.document_key import identities
from tailrace.model import Scope

Policy = Literal["follow", "keep", "refuse"]


class TableForm:
    """Implements :class:`tailrace.destinations.postgresql.form.StorageForm`."""

    def __init__(
        self,
        schema: str,
        template: Template,
        maker: RowMaker,
        registry: Registry,
        scope: Scope,
        *,
        policy: Policy,
        soft: bool,
        create: bool,
        automatic: int,
    ) -> None:
        """``automatic``: how many automatic columns a table has at most."""
        self._schema = schema
        self._template = template
        self._maker = maker
        self._registry = registry
        self._scope = scope
        self._policy = policy
        self._create = create
        self._tables = KnownTables(schema, maker, automatic, soft=soft)

    def rows(
        self,
        events: Mapping[int, ChangeEvent],
        refused: dict[int, str],
        tables: Mapping[Namespace, TableStatements] | None = None,
    ) -> Mapping[Namespace, RowColumns]:
        """The rows of each collection, for the ``tables`` or those that are written."""

        def automatic(namespace: Namespace) -> AutomaticColumns:
            table = tables[namespace] if tables else self.table_of(namespace)
            return table.automatic

        return self._maker.rows(events, refused, automatic)

    def rows_of(self, table: TableStatements, documents: Sequence[bytes]) -> RowColumns:
        """Those of documents of one collection, to compare them."""
        return self._maker.rows_of(documents, table.automatic)

    async def adapt(
        self,
        connection: Connection,
        rows: Mapping[Namespace, RowColumns],
        checked: dict[str, bool],
        log: Any,
    ) -> bool:
        if not self._tables.grow:
            return False
        for namespace, made_rows in rows.items():
            table = self.table_of(namespace)
            if _checked_key(namespace, table.name) not in checked:
                async with transaction(connection):
                    await self._checked(connection, namespace, checked)
            elif made_rows.news and made_rows.automatic is table.automatic:
                await self._tables.extend(connection, table.name, made_rows.news, log)
        return any(
            made_rows.automatic is not self.table_of(namespace).automatic
            for namespace, made_rows in rows.items()
        )

    async def prepare(self, connection: Connection) -> None:
        for _, namespace in followed_collections([self._scope]):
            await self._checked(connection, namespace, {})

    async def order_matters(
        self,
        connection: Connection,
        rows: Mapping[Namespace, RowColumns],
        checked: dict[str, bool],
    ) -> bool:
        matters = False
        for namespace in rows:
            table = await self._checked(connection, namespace, checked)
            matters |= checked[_checked_key(namespace, table.name)]
        return matters

    async def store(
        self,
        connection: Connection,
        rows: Mapping[Namespace, RowColumns],
        checked: dict[str, bool],
    ) -> None:
        async with connection.cursor(binary=True) as cursor:
            for namespace, stored in rows.items():
                if not (stored.ids or stored.gone):
                    continue
                table = await self._checked(connection, namespace, checked)
                if stored.gone_if:
                    await cursor.execute(table.keys, (list(stored.gone_if),))
                    stored.spare_rows_of_others(await cursor.fetchall())
                if stored.gone:
                    await cursor.execute(table.delete, (stored.gone, stored.gone_at))
                if stored.ids:
                    await cursor.execute(table.upsert, stored.sent)

    async def apply(
        self,
        connection: Connection,
        scope: ScopeContext,
        event: ChangeEvent,
        checked: dict[str, bool],
    ) -> None:
        operation = event.operation_type
        if operation == "snapshotEnd":
            await self._sweep(connection, scope, event)
        rename = Rename.of(event, self._scope)
        if rename is not None:
            rename.warn(scope)
        if operation not in ("drop", "rename", "dropDatabase") or self._policy == "keep":
            return
        if self._policy == "refuse":
            raise PermanentError(
                f"{operation} of {event.ns}, and ddl is 'refuse': change it to 'follow' or 'keep' "
                "to continue"
            )
        namespace, time = event.ns, event.cluster_time
        if namespace is None or time is None:
            raise PermanentError(f"a {operation} without namespace or cluster time")
        tables = await self._registry.tables(connection)
        if operation == "dropDatabase":
            for collection, name in tables.items():
                if collection.db == namespace.db:
                    await self._empty(connection, name, time)
        elif rename is not None and rename.arrives:
            source = tables.get(namespace)
            await self._rename(connection, source, rename.to, time, checked)
        elif namespace in tables:
            await self._empty(connection, tables[namespace], time)

    @property
    def automatic_columns(self) -> Mapping[str, Sequence[str]]:
        return self._tables.columns

    def misfits(self, rows: Mapping[Namespace, RowColumns]) -> list[str]:
        return [misfit for each in rows.values() for misfit in each.misfits]

    def table_of(self, namespace: Namespace) -> TableStatements:
        """The table of a collection, whether it is there or not."""
        return self._tables.of(self._name(namespace))

    async def table_now(self, connection: Connection, namespace: Namespace) -> TableStatements:
        """The same with the automatic columns that it has now, which a writer may not know."""
        return await self._tables.read(connection, self._name(namespace))

    def _name(self, namespace: Namespace) -> str:
        return table_name(self._template, self._scope.name, namespace)

    async def _checked(
        self, connection: Connection, namespace: Namespace, checked: dict[str, bool]
    ) -> TableStatements:
        """The table of a collection, made if missing; checked once in a connection's life."""
        table = self.table_of(namespace)
        name, key = table.name, _checked_key(namespace, table.name)
        if key not in checked:
            await lock_names(connection)
            await self._registry.enter(connection, name, namespace)
            if await made(connection, self._schema, name, table.create, allowed=self._create):
                await self._registry.note_made(connection, name)
            table = await self._tables.renewed(connection, name)
            await require_columns(connection, table, "tailrace_id")
            checked[key] = await order_matters(connection, table)
        return table

    async def _empty(self, connection: Connection, name: str, time: Timestamp) -> None:
        await connection.execute(self._tables.of(name).empty, {"at": version_of(time)})

    async def _rename(
        self,
        connection: Connection,
        source: str | None,
        new: Namespace,
        time: Timestamp,
        checked: dict[str, bool],
    ) -> None:
        """Moves the rows. Those that the new name had before are gone (``dropTarget``)."""
        if source is not None and source == self._name(new):
            await self._registry.remove(connection, source)
            await self._checked(connection, new, {})
            return
        target = await self._checked(connection, new, checked)
        await self._empty(connection, target.name, time)
        if source is not None:
            await self._tables.adopt(connection, source, target.name)
            moved = self._tables.of(target.name).take_rows_of(self._tables.of(source))
            await connection.execute(moved, {"at": version_of(time)})
            await self._remove(connection, source, checked)

    async def _remove(self, connection: Connection, name: str, checked: dict[str, bool]) -> None:
        """Drops a table that we made, unless it has rows, or a view or a query needs it."""
        row: Any = await (await connection.execute(self._tables.of(name).first, ())).fetchone()
        if row is not None or not await self._registry.is_made(connection, name):
            return
        await connection.execute(b"SAVEPOINT removal; SET LOCAL lock_timeout = '1s'")
        try:
            await connection.execute(self._tables.of(name).drop, ())
        except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.LockNotAvailable):
            await connection.execute(b"ROLLBACK TO SAVEPOINT removal")
            return
        await self._registry.remove(connection, name)
        checked.clear()

    async def _sweep(self, connection: Connection, scope: ScopeContext, event: ChangeEvent) -> None:
        """Removes the rows of documents that the snapshot did not find.

        Documents with dead letters keep theirs: their rows of the snapshot did not come.
        """
        snapshot = SnapshotBarrier.of(event)
        if snapshot.began is None:
            return
        set_aside, follows = identities(scope.dead_letter_keys), self._policy == "follow"
        for namespace, name in (await self._registry.tables(connection)).items():
            if snapshot.is_complete(namespace, dropped=follows):
                ids = [row_id(each) for each in set_aside.get(namespace, ())]
                parameters = {"at": version_of(snapshot.began), "kept": ids}
                await connection.execute(self._tables.of(name).sweep, parameters)


def _checked_key(namespace: Namespace, table: str) -> str:
    return f"{namespace}\0{table}"


def version_of(time: Timestamp) -> int:
    """The version of a row that changed at this cluster time."""
    return position(time.time, time.inc)
