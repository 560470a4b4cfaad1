"""Adds an entry for each event to a stream of Redis."""

from collections.abc import Sequence
from typing import Self

from tailrace.destination import (
    Batch,
    MessageMaker,
    Opening,
    ProbeContext,
    ScopeContext,
    Template,
    converted,
    namespace_of,
)
from tailrace.destinations.redis import RedisHandlerSettings
from tailrace.destinations.redis.fence import claim
from tailrace.destinations.redis.server import Command, RedisConnection, RedisServer
from tailrace.errors import Unavailable
from tailrace.event import ChangeEvent
from tailrace.event.memo import Memo


class RedisStreams:
    """The entries of a batch are added in one transaction, in the order of its events."""

    def __init__(self, opening: Opening, settings: RedisHandlerSettings) -> None:
        self._server = RedisServer(opening.name, settings)
        self._epoch = settings.own_key("epoch", opening.name, opening.scope.name)
        self._settings = settings
        self._scope = opening.scope
        self._messages = MessageMaker(settings, scope=opening.scope)
        self._trim: Command = ()
        if settings.max_length is not None:
            self._trim = "MAXLEN", "~", settings.max_length
        template = settings.stream or Template("")
        self._streams: Memo[tuple[str, str, str], str] = Memo(
            lambda source: template.name(*source[:2], scope=source[2])
        )

    async def __aenter__(self) -> Self:
        await self._server.require_usable()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.close()

    async def write(self, batch: Batch) -> None:
        await self._add(list(batch), batch.scope)

    async def on_ddl(self, event: ChangeEvent, scope: ScopeContext) -> None:
        await self._add([event], scope)

    async def probe(self, context: ProbeContext) -> str:
        version = await self._server.require_usable()
        streams: list[str] = []
        async with self._server.connection() as connection:
            for scope in context.scopes:
                if scope.database is None or scope.collection is None:
                    continue
                stream = self._streams[scope.database, scope.collection, scope.name]
                await _require_streams(connection, {stream})
                await connection.one("XTRIM", stream, "MAXLEN", 2**62)  # it may be written to
                streams.append(stream)
        named = ", ".join(dict.fromkeys(streams))
        return f"Redis {version} can be written to" + (f": streams {named}" if named else "")

    async def _add(self, events: Sequence[ChangeEvent], scope: ScopeContext) -> None:
        commands = await converted(self._commands, events)
        if commands:
            size = sum(
                len(part) for command in commands for part in command if isinstance(part, bytes)
            )
            async with self._server.writing(len(events), size) as connection:
                await _require_streams(connection, {str(command[1]) for command in commands})
                await connection.at_once([await claim(connection, self._epoch, scope), *commands])

    def _commands(self, events: Sequence[ChangeEvent]) -> list[Command]:
        scope = self._scope.name
        made: list[Command] = []
        for event, message in zip(events, self._messages.of(events, scope), strict=True):
            if message.is_empty:
                continue
            database, collection = namespace_of(event, self._scope)
            made.append(
                (
                    *("XADD", self._streams[database, collection, scope], *self._trim, "*"),
                    *("id", message.id, "operation", event.operation_type),
                    *("namespace", f"{database}.{collection}"),
                    *(() if message.key is None else ("key", message.key)),
                    *(() if message.value is None else ("value", message.value)),
                )
            )
        return made


async def _require_streams(connection: RedisConnection, streams: set[str]) -> None:
    """Raises :class:`Unavailable` for a key of another type.

    Otherwise the transaction would add the other entries of the batch, again with each attempt.
    """
    unknown = sorted(streams - connection.streams)
    kinds = await connection.each([("TYPE", stream) for stream in unknown]) if unknown else []
    for stream, kind in zip(unknown, kinds, strict=True):
        if kind not in (b"stream", b"none"):
            message = f"the key {stream!r} is not a stream: delete it, or choose another 'stream'"
            raise Unavailable(message)
    connection.streams.update(unknown)
