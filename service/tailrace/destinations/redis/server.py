"""A connection to Redis, and what the server's errors mean.

After an error, also a cancellation, a connection is closed: answers that are still to come would be
taken for those of the next commands.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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

from tailrace.destinations.redis import URL, RedisHandlerSettings
from tailrace.errors import (
    BatchTooLarge,
    ConfigurationError,
    Problem,
    Refused,
    Unavailable,
    describe,
)

OLDEST = 5
"""The first version with streams."""
_CLOSING_SECONDS = 1.0

USER = "it refuses the login or a command: correct {key}, or the ACL of its user"
CLUSTER = "Redis Cluster is not supported"

Command = tuple[str | bytes | int, ...]
_packed: Callable[[Command], bytes] = pack_command  # type: ignore[assignment] # its stub has one

LEAST_LIMIT = 1 << 20
"""No limit of the server for the size of a value or of what it reads can be set below this."""

EVENT = (
    "string exceeds maximum allowed size",  # checkStringLength
    "Protocol error: invalid bulk length",  # proto-max-bulk-len
)
"""Beginnings of the only replies that are about an event: its value is too large. All others are
about the server, its settings or its keys (an unknown command, too), and are waited out.

https://github.com/redis/redis/blob/unstable/src/t_string.c, networking.c
"""
ADVICE: Mapping[type[Exception] | str, str] = {
    exceptions.AuthenticationError: USER,  # NOAUTH, WRONGPASS
    exceptions.AuthorizationError: USER,
    exceptions.NoPermissionError: USER,  # NOPERM
    exceptions.OutOfMemoryError: "raise maxmemory, or free some",
    exceptions.ReadOnlyError: "it is a replica: name the primary",
    exceptions.AskError: CLUSTER,  # MOVED
    exceptions.MasterDownError: "it is a replica without its primary",
    exceptions.ClusterDownError: CLUSTER,
    "BUSY": "a script runs",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "min-replicas-to-write",
    "WRONGTYPE": "a key holds something else: delete it, or choose other names",
    "unknown command": "it is renamed or disabled there",
}
"""What an operator can do: by the class of redis-py, or by what a reply without one begins with.

https://github.com/redis/redis/blob/unstable/src/server.c, createSharedObjects
"""


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
        answers: list[Any] = []
        for _ in commands:
            try:
                answers.append(await self._connection.read_response())
            except ResponseError as error:
                answers.append(error)
        return answers

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
    """The server of handler ``name``, and a connection to it."""

    def __init__(self, name: str, settings: RedisHandlerSettings) -> None:
        self._name = name
        self._settings = settings
        self._open: RedisConnection | None = None

    async def close(self) -> None:
        """Closes the connection. Does not raise."""
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        """The connection, opened if need be.

        An error, also a cancellation, closes it. Raises as :func:`unavailable`.
        """
        try:
            with unavailable(f"handlers.{self._name}.url"):
                if self._open is None:
                    self._open = await self._connected()
                yield self._open
        except BaseException:
            await self.close()
            raise

    @asynccontextmanager
    async def writing(self, events: int, size: int) -> AsyncIterator[RedisConnection]:
        """The connection, to write so many events of so many bytes.

        The server answers a value over its limits by ending the connection, mostly before its reply
        is read, and may be too slow for a large call. Raises :class:`BatchTooLarge` if that may be
        so, and :class:`Refused` for one event that is too large.
        """
        is_open = False
        try:
            async with self.connection() as connection:
                is_open = True
                yield connection
        except ResponseError as error:
            if events > 1:
                raise BatchTooLarge(f"Redis: {error}") from error
            raise Refused({0: f"Redis: {error}"}) from error
        except Unavailable as error:
            ended = (exceptions.ConnectionError, exceptions.TimeoutError)
            if not is_open or size < LEAST_LIMIT or not isinstance(error.__cause__, ended):
                raise
            if events > 1:
                raise BatchTooLarge(str(error)) from error
            if reason := await self._exceeded(size):
                raise Refused({0: reason}) from error
            raise

    async def require_usable(self) -> str:
        """Requires a server that is new enough and not a cluster; returns its version.

        Raises :class:`ConfigurationError`, and :class:`Unavailable`.
        """
        path = f"handlers.{self._name}.url"
        async with self.connection() as connection:
            (answer,) = await connection.answers([("INFO", "server")])
            if isinstance(answer, exceptions.NoPermissionError):
                answer = await connection.one("PING") and b""
        lines = dict(line.partition(":")[::2] for line in answer.decode().split())
        await self.close()
        version = lines.get("redis_version", "")
        if lines.get("redis_mode") == "cluster":
            message = "Redis Cluster is not supported: name a server that is not in a cluster"
            raise ConfigurationError(Problem(path, message))
        if version and int(version.partition(".")[0]) < OLDEST:
            message = f"Redis {version} is too old: {OLDEST}.0 or newer is needed"
            raise ConfigurationError(Problem(path, message))
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

    async def _exceeded(self, size: int) -> str:
        """Which limit of the server a value of so many bytes exceeds; empty if none is known to."""
        for name in ("proto-max-bulk-len", "client-query-buffer-limit"):
            async with self.connection() as connection:
                (found,) = await connection.answers([("CONFIG", "GET", name)])
            if isinstance(found, list) and len(found) == 2 and 0 < int(found[1]) < size:
                return f"its {size} bytes are over Redis's {name} ({int(found[1])})"
        return ""


@contextmanager
def unavailable(key: str) -> Iterator[None]:
    """Raises errors of the server and the network as :class:`Unavailable`, but for those that are
    about one event. ``key``: where the URL is configured."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        text = str(error)
        if isinstance(error, ResponseError) and text.startswith(EVENT):
            raise
        for mark, advice in ADVICE.items():
            if text.startswith(mark) if isinstance(mark, str) else isinstance(error, mark):
                told = f"{describe(error)}: {advice.format(key=key)}"
                raise Unavailable(f"Redis: {told}") from error
        raise Unavailable(f"Redis: {describe(error)}") from error


def _raise_first(answers: Sequence[Any]) -> None:
    for each in answers:
        if isinstance(each, ResponseError):
            raise each
