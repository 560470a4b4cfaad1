"""Connections to Redis: one for each scope, and what the server's errors mean.

After an error, also a cancellation, a connection is closed: answers that are still to come would be
taken for those of the next commands.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
from anyio import to_thread
from hiredis import pack_command
from redis import exceptions
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from tailrace.errors import ConfigurationError, Problem, Unavailable, describe
from tailrace.handlers.redis import URL, RedisHandlerSettings

OLDEST = 5
"""The first version with streams."""
_CLOSING_SECONDS = 1.0

Command = tuple[str | bytes | int, ...]
_packed: Callable[[Command], bytes] = pack_command  # type: ignore[assignment] # its stub has one

_REFUSES_THE_USER = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_OUTAGES = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.MasterDownError,
    OSError,
)
_OUTAGE_CODES = ("MISCONF", "NOREPLICAS", "BUSY", "MOVED", "CLUSTERDOWN")
"""First words of errors for which redis-py has no class, or had none in former versions, and which
are not about an event. https://github.com/redis/redis/blob/unstable/src/server.c."""


class RedisConnection:
    """A connection that is open."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.streams: set[str] = set()
        """Keys that were streams, or missing, when this connection looked."""

    async def answers(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands that are sent together; errors of the server are among them."""
        packed = b"".join([_packed(command) for command in commands])
        await self._connection.send_packed_command([packed], check_health=False)
        found: list[Any] = []
        for _ in commands:
            try:
                found.append(await self._connection.read_response())
            except ResponseError as error:
                found.append(error)
        return found

    async def each(self, commands: Sequence[Command]) -> list[Any]:
        """The same; raises the first error of the server."""
        found = await self.answers(commands)
        _raise_first(found)
        return found

    async def one(self, *command: str | bytes | int) -> Any:
        """The answer to one command."""
        return (await self.each([command]))[0]

    async def at_once(self, commands: Sequence[Command]) -> None:
        """Executes the commands in one transaction (``MULTI``), all of them or none.

        Raises the first error of the server, and :class:`Unavailable` if a key that was watched has
        changed. Only an error that depends on what a key holds ends one command alone.
        """
        *queued, executed = await self.answers([("MULTI",), *commands, ("EXEC",)])
        _raise_first([*queued, executed])
        if executed is None:
            raise Unavailable("another process has written to Redis meanwhile", retry_after=0)
        _raise_first(executed)

    async def close(self) -> None:
        """Does not raise."""
        with anyio.move_on_after(_CLOSING_SECONDS, shield=True), suppress(Exception):
            await self._connection.disconnect()


class RedisServer:
    """The server of handler ``name``, and its open connections."""

    def __init__(self, name: str, settings: RedisHandlerSettings) -> None:
        self._name = name
        self._settings = settings
        self._connections: dict[str, RedisConnection] = {}
        """By scope."""

    async def close(self) -> None:
        for scope in list(self._connections):
            await self._connections.pop(scope).close()

    @asynccontextmanager
    async def connection(self, scope: str) -> AsyncIterator[RedisConnection]:
        """The scope's connection, opened if need be.

        An error, also a cancellation, closes it. Errors of the server and of the network are raised
        as :class:`Unavailable`, unless an event may be at fault.
        """
        try:
            with self._unavailable():
                if scope not in self._connections:
                    self._connections[scope] = await self._connected()
                yield self._connections[scope]
        except BaseException:
            if scope in self._connections:
                await self._connections.pop(scope).close()
            raise

    async def require_usable(self) -> str:
        """Requires a server that is new enough and not a cluster; returns its version.

        Raises :class:`ConfigurationError`, and :class:`Unavailable`.
        """
        place = f"handlers.{self._name}.url"
        async with self.connection("") as connection:
            (found,) = await connection.answers([("INFO", "server")])
            if isinstance(found, exceptions.NoPermissionError):
                found = await connection.one("PING") and b""
        lines = dict(line.partition(":")[::2] for line in found.decode().split())
        await self._connections.pop("").close()
        version = lines.get("redis_version", "")
        if lines.get("redis_mode") == "cluster":
            message = "Redis Cluster is not supported: name a server that is not in a cluster"
            raise ConfigurationError(Problem(place, message))
        if version and int(version.partition(".")[0]) < OLDEST:
            message = f"Redis {version} is too old: {OLDEST}.0 or newer is needed"
            raise ConfigurationError(Problem(place, message))
        return version or "of a version that its ACL hides"

    async def _connected(self) -> RedisConnection:
        url = await to_thread.run_sync(self._settings.url.read)
        if URL.fullmatch(url) is None:
            raise Unavailable(f"the file of handlers.{self._name}.url holds no redis:// URL")
        seconds = self._settings.answer_seconds
        pool: Any = ConnectionPool.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            client_name=f"tailrace-{self._name}",
        )
        connection = RedisConnection(made := pool.make_connection())
        try:
            await made.connect()
        except BaseException:
            await connection.close()
            raise
        return connection

    @contextmanager
    def _unavailable(self) -> Iterator[None]:
        key = f"handlers.{self._name}.url"
        try:
            yield
        except _REFUSES_THE_USER as error:
            message = f"Redis refuses the login or a command: correct {key}, or the ACL of its user"
            raise Unavailable(f"{message} ({error})") from error
        except _OUTAGES as error:
            raise Unavailable(f"Redis: {describe(error)}") from error
        except ResponseError as error:
            if str(error).startswith(_OUTAGE_CODES):
                raise Unavailable(f"Redis: {error}") from error
            raise


def _raise_first(answers: Sequence[Any]) -> None:
    for each in answers:
        if isinstance(each, ResponseError):
            raise each
