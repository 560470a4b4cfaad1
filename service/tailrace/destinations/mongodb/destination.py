"""Writes batches to another cluster, each in a transaction with its position."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Self

import anyio
from pymongo.errors import OperationFailure

from tailrace.destination import Batch, Comparison, Opening, ProbeContext, ScopeContext
from tailrace.destinations.mongodb import MongodbHandlerSettings
from tailrace.destinations.mongodb.cluster import CLOSING_SECONDS, Cluster, connect
from tailrace.destinations.mongodb.comparison import CopyComparison
from tailrace.destinations.mongodb.copy_changes import CopyChanges
from tailrace.destinations.mongodb.ddl import Barriers
from tailrace.destinations.mongodb.names import followed, known_targets
from tailrace.destinations.mongodb.outcomes import (
    DUPLICATE_KEYS,
    INVALID_NAMESPACE,
    Rejected,
    message,
    outages,
)
from tailrace.destinations.mongodb.probe import refusal
from tailrace.destinations.mongodb.run import DestinationRun
from tailrace.destinations.mongodb.state import PositionDocument
from tailrace.destinations.mongodb.statements import (
    BulkWrite,
    Order,
    changes,
    insertions,
    of_shard_keys,
)
from tailrace.destinations.mongodb.sweep import Unseen
from tailrace.errors import (
    ConfigurationError,
    Problem,
    Refused,
    ScopeHalted,
    StartRefused,
    Unavailable,
)
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.document_identity import shows
from tailrace.event.last_change import all_changes, last_changes

_ORDERS: Sequence[Order] = ("last", "anew", "stream")
"""Tried one after another where a value of a unique index may have changed hands, or the outbox has
some of the events. Only the order of the stream shows which event is at fault."""
_NOWHERE = Namespace("", "")
"""The collection of all events, in an outbox."""


class MongodbDestination:
    """A mirror, or an outbox, of one scope. Its session is made by ``begin``."""

    def __init__(self, opening: Opening, settings: MongodbHandlerSettings) -> None:
        self._name = opening.name
        self._scope = opening.scope
        self._follows = opening.follows
        self._settings = settings
        self._names = settings.names
        self._copy_of = partial(settings.names.of, opening.scope.name)
        self._own_id = f"{opening.name}/{opening.scope.name}"
        self._mapping = settings.fields.mapping()
        self._cluster: Cluster | None = None
        self._run: DestinationRun | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._connected()
        except StartRefused as error:
            raise ConfigurationError(Problem(f"handlers.{self._name}.uri", str(error))) from error
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._run is not None:
            await self._end(self._run)
        if self._cluster is not None:
            await self._cluster.close()

    async def probe(self, context: ProbeContext) -> str:
        """Tries what it would write, in a transaction that it aborts."""
        cluster = await self._connected()
        known = list(known_targets(self._names, self._settings.state, context.scopes))
        reason = followed(cluster.identity, context.cluster, known, context.scopes)
        reason = reason or await refusal(cluster, known)
        if reason:
            raise ConfigurationError(Problem(f"handlers.{self._name}", reason))
        written = ", ".join(str(each) for each in known if each.coll is not None)
        return f"{cluster.identity}: {written} can be written"

    async def begin(self, scope: ScopeContext) -> str | None:
        """The stored position. Raises :class:`ScopeHalted` if it would write what it follows."""
        former, self._run = self._run, None
        try:
            run = self._run = await self._claimed(scope)
        finally:
            if former is not None:  # not before: its session would be used for the claim
                await self._end(former)
        return run.position.text

    @property
    def comparison(
        self,
    ) -> Callable[[ScopeContext], AbstractAsyncContextManager[Comparison]] | None:
        """An outbox has no copies of documents."""
        return self._comparison if self._settings.outbox is None else None

    @asynccontextmanager
    async def _comparison(self, scope: ScopeContext) -> AsyncIterator[Comparison]:
        try:
            cluster = await connect(self._settings.uri.read())
        except StartRefused as error:
            raise Unavailable(str(error)) from error
        try:
            yield CopyComparison(
                cluster,
                self._copy_of,
                self._mapping,
                self._settings.state,
                self._own_id,
            )
        finally:
            await cluster.close()

    async def _claimed(self, scope: ScopeContext) -> DestinationRun:
        try:
            cluster = await self._connected()
        except StartRefused as error:  # since the start, the file has got another URI
            raise Unavailable(str(error)) from error
        self._require_apart(cluster, scope.cluster)
        position = PositionDocument(cluster, self._settings.state, self._own_id, scope.epoch)
        unseen = Unseen(cluster, self._settings.state, self._own_id)
        session = cluster.client.start_session(causal_consistency=False)
        run = DestinationRun(cluster, session, position, unseen, scope.cluster)
        try:
            with outages():
                await position.claim(session)
        except BaseException:
            await self._end(run)
            raise
        return run

    @property
    def _begun(self) -> DestinationRun:
        assert self._run is not None  # noqa: S101 - for the type checker
        return self._run

    async def write(self, batch: Batch) -> None:
        run = self._begun
        with outages():
            for order in _ORDERS:
                try:
                    await self._store(run, batch, order)
                    return
                except Rejected as error:
                    rejected = error
                    if error.code not in DUPLICATE_KEYS:
                        break
            raise rejected.outcome(len(batch)) from rejected

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        run = self._begun
        with outages():
            if self._settings.outbox is not None:
                await self._copy(run, _NOWHERE)
                await run.transact(self._inserts([(0, event)], again=True))
                return
            barriers = Barriers(
                run,
                self._copy_of,
                self._settings.ddl,
                lambda source: self._copy(run, source),
                self._scope,
                scope,
            )
            await barriers.handle(event)

    # --- batches ---------------------------------------------------------------------------

    async def _store(self, run: DestinationRun, batch: Batch, order: Order) -> None:
        plan: list[BulkWrite] = []
        if self._settings.outbox is not None:
            await self._copy(run, _NOWHERE)
            plan += self._inserts(enumerate(batch), again=order != "last")
        else:
            for wanted in await self._wanted(run, batch, order):
                plan += changes(wanted.copy, wanted.changes, order=order)
                if run.sweeps:
                    plan += run.unseen.named(wanted.copy, wanted.keys)
        await run.transact(plan, batch)

    async def _wanted(
        self, run: DestinationRun, batch: Batch, order: Order
    ) -> Sequence[CopyChanges]:
        """What happens to the copies: the last change of each document, or in the order of the
        stream every one, by consecutive changes of one copy."""
        in_order = order == "stream"
        changed = all_changes(batch) if in_order else last_changes(batch)
        events: Sequence[ChangeEvent] = [batch[change.index] for change in changed]
        if self._mapping is not None:
            events = self._mapping.of(events)
        changes: list[CopyChanges] = []
        by_source: dict[Namespace, CopyChanges] = {}
        refused: dict[int, str] = {}
        for change, event in zip(changed, events, strict=True):
            source, index = event.ns, change.index
            if source is None or event.key is None:
                refused[index] = "the scope's pipeline removes its namespace or its document key"
                continue
            wanted = by_source.get(source)
            if wanted is None or (in_order and wanted is not changes[-1]):
                copy = run.copies.get(source) or await self._copy(run, source)
                wanted = by_source[source] = CopyChanges(copy)
                changes.append(wanted)
            shown = all(shows(key, self._mapping) for key in change.shard_keys)
            only_if = of_shard_keys(change.shard_keys) if shown else b""
            if reason := wanted.add(index, event, only_if):
                refused[index] = reason
        if refused and not in_order:  # then a later change of the document replaces it
            raise Refused(refused)
        return changes

    def _inserts(
        self, events: Iterable[tuple[int, ChangeEvent]], *, again: bool
    ) -> Iterable[BulkWrite]:
        return insertions(
            self._copy_of(_NOWHERE), ((at, each.raw) for at, each in events), again=again
        )

    async def _copy(self, run: DestinationRun, source: Namespace) -> Namespace:
        """The copy of a collection, which is there then. Raises :class:`ScopeHalted` if it may not
        be written."""
        copy = self._copy_of(source)
        if source in run.copies:
            return copy
        reason = followed(run.cluster.identity, run.source, [copy], self._follows)
        if reason:
            raise ScopeHalted(f"handlers.{self._name}: {reason}")
        try:
            if source is _NOWHERE:
                await run.registry.make(copy)
            else:
                await run.registry.register(copy, source)
        except OperationFailure as error:
            if error.code == INVALID_NAMESPACE:
                reason = f"{copy} cannot be the name of a copy: {message(error)}"
                raise ScopeHalted(f"handlers.{self._name}: {reason}") from error
            raise
        run.copies[source] = copy
        return copy

    # --- clients ---------------------------------------------------------------------------

    async def _connected(self) -> Cluster:
        """A client with the URI as it is now. Called only where no run uses the former one."""
        uri, former = self._settings.uri.read(), self._cluster
        if former is not None and former.uri == uri:
            return former
        self._cluster = cluster = await connect(uri)
        if former is not None:
            await former.close()
        return cluster

    async def _end(self, run: DestinationRun) -> None:
        with anyio.move_on_after(CLOSING_SECONDS, shield=True):
            await run.session.end_session()

    def _require_apart(self, cluster: Cluster, source: str) -> None:
        """Raises :class:`ScopeHalted` if it would write what it follows."""
        known = list(known_targets(self._names, self._settings.state, self._follows))
        if reason := followed(cluster.identity, source, known, self._follows):
            raise ScopeHalted(f"handlers.{self._name}: {reason}")
