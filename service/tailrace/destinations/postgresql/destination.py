"""Stores batches in PostgreSQL, each change once: the position is in the same transaction.

It has one connection, which ``begin`` makes. It is closed when a call fails or is
cancelled, because the server may still be at work on it; the engine calls ``begin`` before it tries
again.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import psycopg
from anyio import to_thread
from prometheus_client import CollectorRegistry, Counter

from tailrace.destination import Batch, Comparison, Opening, ProbeContext, ScopeContext
from tailrace.destinations.postgresql import PostgreSQLSettings
from tailrace.destinations.postgresql.comparison import TableComparison
from tailrace.destinations.postgresql.connection import (
    Connection,
    connected,
    is_of_data,
    is_outage,
    outages,
    server_message,
    transaction,
)
from tailrace.destinations.postgresql.forms import form_of
from tailrace.destinations.postgresql.positions import POSITIONS, PositionsTable
from tailrace.destinations.postgresql.stream_order import refusals, runs
from tailrace.destinations.postgresql.table_check import require_statements
from tailrace.destinations.postgresql.table_form import TableForm
from tailrace.destinations.postgresql.tables import (
    TABLES,
    Registry,
    TableRefused,
    exists,
    lock_names,
    made,
    require_server,
)
from tailrace.errors import ConfigurationError, Problem, Refused, Unavailable
from tailrace.event import ChangeEvent
from tailrace.event.last_change import overtaken
from tailrace.model import Scope

_LARGE_BYTES = 1 << 20
"""Events of this size are converted in a thread: that would hold the event loop for 10 ms."""


_LOCKS = b"SET LOCAL lock_timeout = '5s'"
"""A start does not wait for a table that somebody has locked: ``run`` waits later."""


@dataclass(slots=True)
class _Session:
    """A connection, and the position that is stored."""

    connection: Connection
    stored: str | None = None
    checked: dict[str, bool] = field(default_factory=dict)
    """Whether order matters in the tables that were checked, and made if they were missing."""


class PostgreSQL:
    """Implements the methods of a destination class (docs/handlers.md)."""

    def __init__(self, opening: Opening, settings: PostgreSQLSettings) -> None:
        self._handler = opening.name
        self._settings = settings
        self._opening = opening
        of = settings.db_schema, opening.name, opening.scope.name
        self._positions, self._registry = PositionsTable(*of), Registry(*of)
        self._form = form_of(opening, settings)
        self._misfits = misfit_counter(opening.registry)
        if settings.columns:  # an alert must see it rise from 0
            self._misfits.labels(opening.scope.name, opening.name)
        self._announced = False
        """Whether the first misfit is in the log."""
        self._session: _Session | None = None

    async def __aenter__(self) -> Self:
        """Tries everything that a start needs, and rolls it back."""
        await self._try([self._opening.scope])
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._close()

    async def probe(self, context: ProbeContext) -> str:
        """What a start would do there; nothing of it stays."""
        version = await self._try(context.scopes)
        return f"PostgreSQL {version} answers, and its tables can be written"

    async def begin(self, scope: ScopeContext) -> str | None:
        """The position that is stored. Raises ``Fenced`` if a later process writes there."""
        await self._close()
        session = self._session = _Session(await connected(self._settings.dsn))
        async with self._closed_after_failure():
            # Apart: it locks names before the position's row, and all others the other way round.
            async with transaction(session.connection):
                await self._make_own_tables(session.connection)
            async with transaction(session.connection):
                session.stored = await self._positions.own(session.connection, scope)
                await self._form.prepare(session.connection)
        return session.stored

    async def write(self, batch: Batch) -> None:
        """Stores the batch and its position. Raises ``Refused`` for events that cannot be."""
        session = self._begun()
        older = overtaken(batch) if self._settings.table is not None else ()
        events = {number: event for number, event in enumerate(batch) if number not in older}
        refused: dict[int, str] = {}
        rows = await self._rows(events, refused)
        if refused:
            raise Refused(refused)
        async with self._closed_after_failure():
            while await self._form.adapt(
                session.connection, rows, session.checked, batch.scope.log
            ):
                rows = await self._rows(events, {})
            try:
                await self._store(session, batch, events, rows)
            except psycopg.Error as error:
                if not is_of_data(error):
                    raise
                await session.connection.execute(b"ROLLBACK")
                session.checked.clear()
                await self._store_in_order(session, batch, events, rows)
        session.stored = batch.position
        self._count(batch.scope, self._form.misfits(rows))

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        """Applies an event that is not about a document, unless it was applied before."""
        session = self._begun()
        connection = session.connection
        async with self._closed_after_failure(), transaction(connection):
            if await self._positions.is_new(connection, scope, session.stored, event):
                await self._form.apply(connection, scope, event, session.checked)

    def automatic_columns(self) -> Mapping[str, Sequence[str]]:
        """For ``/status``, by table."""
        return self._form.automatic_columns

    @property
    def comparison(
        self,
    ) -> Callable[[ScopeContext], AbstractAsyncContextManager[Comparison]] | None:
        """A log has no rows of documents."""
        return self._comparison if self._settings.table is not None else None

    @asynccontextmanager
    async def _comparison(self, scope: ScopeContext) -> AsyncIterator[Comparison]:
        connection, form = await connected(self._settings.dsn), cast(TableForm, self._form)
        try:
            yield TableComparison(connection, form, self._registry, self._positions)
        finally:
            await connection.close()

    def _begun(self) -> _Session:
        if self._session is None:
            raise Unavailable("the connection was closed after a failure")
        return self._session

    async def _rows(self, events: Mapping[int, ChangeEvent], refused: dict[int, str]) -> Any:
        if sum(event.size for event in events.values()) < _LARGE_BYTES:
            return self._form.rows(events, refused)
        return await to_thread.run_sync(self._form.rows, events, refused)

    async def _store(
        self, session: _Session, batch: Batch, events: Mapping[int, ChangeEvent], rows: Any
    ) -> None:
        """Stores table by table, or by runs if the order of the stream matters in its tables."""
        connection, checked = session.connection, session.checked
        async with transaction(connection):
            await self._move(connection, batch)
            if not await self._form.order_matters(connection, rows, checked):
                await self._form.store(connection, rows, checked)
                return
            for run in runs(events):
                await self._form.store(connection, await self._rows(run, {}), checked)

    async def _store_in_order(
        self, session: _Session, batch: Batch, events: Mapping[int, ChangeEvent], rows: Any
    ) -> None:
        """Stores after a refusal, in the order of the stream. Raises ``Refused`` for the events at
        fault."""
        connection, checked = session.connection, session.checked

        async def store(some: Mapping[int, ChangeEvent]) -> None:
            await self._form.store(connection, await self._rows(some, {}), checked)

        async with transaction(connection):
            await self._move(connection, batch)
            # Makes tables that are missing now: no savepoint may take them back.
            await self._form.order_matters(connection, rows, checked)
            if errors := await refusals(connection, events, store):
                raise Refused(
                    {
                        at: f"{server_message(error)} ({_named(events[at])})"
                        for at, error in errors.items()
                    }
                )

    async def _move(self, connection: Connection, batch: Batch) -> None:
        await self._positions.move(connection, batch.scope, batch.position, batch.former, batch[0])

    async def _try(self, scopes: Sequence[Scope]) -> str:
        connection = await connected(self._settings.dsn)
        try:
            async with transaction(connection, commit=False):
                await connection.execute(_LOCKS)
                version = await require_server(connection, self._settings.db_schema)
                await self._make_own_tables(connection)
                await require_statements(connection, POSITIONS, self._positions.writes)
                await require_statements(connection, TABLES, self._registry.writes)
                for scope in scopes:
                    form = form_of(replace(self._opening, scope=scope), self._settings)
                    await form.prepare(connection)
        except TableRefused as error:
            raise self._wrong(str(error)) from error
        except psycopg.errors.InsufficientPrivilege as error:
            message = f"{server_message(error)}: grant it, or name another schema"
            raise self._wrong(message) from error
        except psycopg.Error as error:
            if is_outage(error):
                raise Unavailable(server_message(error)) from error
            raise self._wrong(server_message(error)) from error
        finally:
            await connection.close()
        return version

    def _wrong(self, message: str) -> ConfigurationError:
        return ConfigurationError(Problem(f"handlers.{self._handler}", message))

    async def _make_own_tables(self, connection: Connection) -> None:
        """Locks only if one is missing: a batch locks the row of its position first."""
        schema, allowed = self._settings.db_schema, self._settings.create
        own = {POSITIONS: self._positions.create, TABLES: self._registry.create}
        for name, create in own.items():
            if not await exists(connection, schema, name):
                await lock_names(connection)
                await made(connection, schema, name, create, allowed=allowed)

    @asynccontextmanager
    async def _closed_after_failure(self) -> AsyncIterator[None]:
        """Closes the connection unless the block ends well."""
        try:
            with outages():
                yield
        except TableRefused as error:
            await self._close()
            raise TableRefused(f"handlers.{self._handler}: {error}") from error
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.connection.close()

    def _count(self, scope: ScopeContext, misfits: Sequence[str]) -> None:
        if misfits:
            self._misfits.labels(scope.name, self._handler).inc(len(misfits))
            if not self._announced:
                self._announced = True
                scope.log.warning("column.misfit_stored_as_null", first=misfits[0])


def misfit_counter(registry: CollectorRegistry) -> Counter:
    """The only metric of this destination's own."""
    return Counter(
        "tailrace_column_misfits",
        "Values stored as NULL, because they do not fit the type of their column.",
        ["scope", "handler"],
        registry=registry,
    )


def _named(event: ChangeEvent) -> str:
    return f"{event.ns}, {event.key_text!s:.120}"
