"""Keeps each document as a key of Redis, and removes the keys of documents that are gone."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tailrace.destination import (
    Batch,
    Comparison,
    MessageMaker,
    Opening,
    ProbeContext,
    Rename,
    ScopeContext,
    SnapshotBarrier,
    converted,
    ddl_mark,
    namespace_of,
)
from tailrace.destinations.redis import RedisHandlerSettings
from tailrace.destinations.redis.comparison import KeysComparison
from tailrace.destinations.redis.fence import claim
from tailrace.destinations.redis.key_names import KeyNames, ListedKeys
from tailrace.destinations.redis.server import Command, RedisConnection, RedisServer
from tailrace.destinations.redis.sweep import Sweep, found_keys
from tailrace.event import ChangeEvent, Namespace
from tailrace.event.document_identity import shard_key_in, shows
from tailrace.event.last_change import LastChange, last_changes
from tailrace.event.snapshot_events import SNAPSHOT_BEGIN, SNAPSHOT_END

PROBE = "tailrace:probe"


class RedisKeys:
    """The last state of each document of a batch is set in one transaction."""

    def __init__(self, opening: Opening, settings: RedisHandlerSettings) -> None:
        self._name = opening.name
        self._scope = opening.scope
        self._server = RedisServer(opening.name, settings)
        self._epoch = settings.own_key("epoch", opening.name, opening.scope.name)
        self._settings = settings
        self._names = KeyNames(opening.name, settings, opening.scope)
        self._mapping = settings.fields.mapping()
        self._messages = MessageMaker(settings, "document")
        self._expires: Command = ()
        if settings.expire_seconds is not None:
            self._expires = "EX", settings.expire_seconds
        self._known: tuple[int, Sweep] | None = None
        """What a snapshot has not named yet, as this epoch knows it."""

    async def __aenter__(self) -> Self:
        await self._server.require_usable()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.close()

    async def write(self, batch: Batch) -> None:
        changes = last_changes(batch)
        made = await converted(self._values, [batch[change.index] for change in changes])
        values = {key: value for key, value in made if key}
        if not values:
            return
        deletes = {
            key: change
            for (key, _), change in zip(made, changes, strict=True)
            if change.shard_keys and all(shows(key, self._mapping) for key in change.shard_keys)
        }
        size = sum(len(value) for value in values.values() if value is not None)
        async with self._server.writing(len(batch), size) as connection:
            sweep = await self._sweep(batch.scope, connection)
            first = await claim(connection, self._epoch, batch.scope)
            moved = await _moved(connection, deletes) if deletes else ()
            commands: list[Command] = [
                ("DEL", key) if value is None else ("SET", key, value, *self._expires)
                for key, value in values.items()
                if key not in moved
            ]
            await connection.at_once([first, *commands, *sweep.named(list(values))])

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        async with self._server.connection() as connection:
            await connection.at_once([await claim(connection, self._epoch, scope)])
            if (rename := Rename.of(event, self._scope)) is not None:
                await self._rename(connection, event, rename, scope)
            match event.operation_type, event.ns:
                case "drop", Namespace(db, str(coll)):
                    await self._remove(connection, self._names.prefix(db, coll))
                case operation, _ if operation in (SNAPSHOT_BEGIN, SNAPSHOT_END):
                    await self._snapshot(connection, event, scope)

    async def probe(self, context: ProbeContext) -> str:
        version = await self._server.require_usable()
        async with self._server.connection() as connection:
            await connection.at_once([("SET", PROBE, "", "PX", 1000), ("DEL", PROBE)])
            await connection.one("SCAN", 0, "COUNT", 1)
        return f"Redis {version} can be written to: keys {self._settings.key}"

    @asynccontextmanager
    async def comparison(self, scope: ScopeContext) -> AsyncIterator[Comparison]:
        server = RedisServer(self._name, self._settings)
        try:
            yield KeysComparison(server, self._names, self._values, expires=bool(self._expires))
        finally:
            await server.close()

    def _values(self, events: Sequence[ChangeEvent]) -> list[tuple[str, bytes | None]]:
        """By event, its key and the document as JSON; ``None`` for one that is gone.

        The key is empty if the event says nothing about the document.
        """
        made: list[tuple[str, bytes | None]] = []
        for event, message in zip(events, self._messages.of(events, self._scope.name), strict=True):
            key = ""
            if message.key is not None:
                prefix = self._names.prefix(*namespace_of(event, self._scope))
                key = prefix + message.key.decode()
            made.append((key, message.value))
        return made

    async def _remove(self, connection: RedisConnection, prefix: str) -> None:
        pattern = self._names.pattern(prefix)
        async for keys in found_keys(connection, pattern, ListedKeys({prefix}).owns):
            await connection.one("UNLINK", *keys)

    async def _rename(
        self, connection: RedisConnection, event: ChangeEvent, rename: Rename, scope: ScopeContext
    ) -> None:
        """Gives the keys of a collection the names of another one, if the scope follows it."""
        rename.warn(scope)
        of, to = rename.source, rename.to
        prefix = self._names.prefix(of.db, of.coll or "")
        if not rename.arrives:
            if rename.leaves:
                await self._remove(connection, prefix)
            return
        target = self._names.prefix(to.db, to.coll or "")
        mark, noted = ddl_mark(event), self._settings.own_key("renamed", self._name, scope.name)
        if target != prefix and (await connection.one("GET", noted) or b"") < mark.encode():
            # Once: if the event comes again, these keys may be those that have got their names.
            await self._remove(connection, target)
            await connection.one("SET", noted, mark)
        if not rename.leaves:
            return  # they are another scope's, which follows the old name
        new, former = target.encode(), len(prefix.encode())
        sweep = await self._sweep(scope, connection)
        pattern = self._names.pattern(prefix)
        async for keys in found_keys(connection, pattern, ListedKeys({prefix}).owns):
            names = [new + key[former:] for key in keys]
            moved: list[Command] = [
                ("RENAME", key, name) for key, name in zip(keys, names, strict=True)
            ]
            # A key may have expired, or SCAN gave it twice.
            for answer in await connection.answers(sweep.named(names) + moved):
                if isinstance(answer, Exception) and "no such key" not in str(answer):
                    raise answer

    async def _snapshot(
        self, connection: RedisConnection, event: ChangeEvent, scope: ScopeContext
    ) -> None:
        snapshot = SnapshotBarrier.of(event)
        sweep = await self._sweep(scope, connection)
        if snapshot.filtered:
            return  # it does not show what is missing
        if event.operation_type == SNAPSHOT_BEGIN:
            names = self._names
            await sweep.begin(connection, snapshot.id, names.pattern_of_all(), names.all().owns)
            return
        gone = self._names.swept(snapshot, scope.dead_letter_keys)
        count = await sweep.end(connection, snapshot.id, gone.owns)
        if count is None:
            scope.log.warning("redis.sweep_skipped", reason="what it had noted is not there")
        elif count:
            scope.log.info("redis.swept", keys=count)

    async def _sweep(self, scope: ScopeContext, connection: RedisConnection) -> Sweep:
        """The sweep. Another process may have begun or ended it in another epoch."""
        epoch, sweep = self._known or (None, None)
        if sweep is None or epoch != scope.epoch:
            sweep = Sweep(self._names.noted)
            await sweep.load(connection)
            self._known = scope.epoch, sweep
        return sweep


async def _moved(connection: RedisConnection, deletes: Mapping[str, LastChange]) -> set[str]:
    """The keys whose document has another shard key than the deleted one: it has moved."""
    stored = await connection.answers([("GET", key) for key in deletes])
    moved = set[str]()
    for (key, change), value in zip(deletes.items(), stored, strict=True):
        if isinstance(value, bytes):
            try:
                last = shard_key_in(value, change.shard_keys[-1])
            except ValueError:
                continue  # no document of ours
            if not change.concerns(last, same_time=False):
                moved.add(key)
    return moved
