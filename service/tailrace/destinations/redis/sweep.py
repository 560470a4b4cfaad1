"""Finds what is gone after a snapshot: keys that neither a row nor a later change has named.

At ``snapshotBegin`` all keys of the scope are noted in a set of Redis; each key that is written
leaves it, and at ``snapshotEnd`` the keys that are left are deleted. So a set that was lost, with
an eviction or a restart, deletes nothing, and a snapshot that was cancelled costs nothing more.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from tailrace.destinations.redis.server import Command, RedisConnection

Owns = Callable[[bytes], bool]

_COUNT = 1000
"""About how many keys one command looks at."""
_DAYS = 30 * 86_400
"""A set that no ``snapshotEnd`` removes, because its snapshot was cancelled, expires."""


async def found_keys(
    connection: RedisConnection, pattern: str, owns: Owns
) -> AsyncIterator[list[bytes]]:
    """The keys that match a pattern and are ours, in parts. Some may come twice."""
    cursor: bytes | int = 0
    while True:
        cursor, keys = await connection.one("SCAN", cursor, "MATCH", pattern, "COUNT", _COUNT)
        if ours := [key for key in keys if owns(key)]:
            yield ours
        if int(cursor) == 0:
            return


class Sweep:
    """The keys of a scope that its snapshot has not named yet, in the set ``noted``."""

    def __init__(self, noted: str) -> None:
        self._noted = noted
        self._runs = False

    async def load(self, connection: RedisConnection) -> None:
        """Asks whether a snapshot is running that another process began."""
        self._runs = bool(await connection.one("EXISTS", self._noted))

    def named(self, keys: Sequence[str | bytes]) -> list[Command]:
        """The commands to execute together with writes of these keys."""
        return [("SREM", self._noted, *keys)] if self._runs and keys else []

    async def begin(
        self, connection: RedisConnection, identity: str, pattern: str, owns: Owns
    ) -> None:
        """Notes all keys there are. A repeated ``snapshotBegin`` changes nothing."""
        mark = _mark(identity)
        if await connection.one("SISMEMBER", self._noted, mark):
            self._runs = True
            return
        self._runs = True
        await connection.one("UNLINK", self._noted)
        async for keys in found_keys(connection, pattern, owns):
            await connection.one("SADD", self._noted, *keys)
        expires: Command = ("EXPIRE", self._noted, _DAYS)
        await connection.at_once([("SADD", self._noted, mark), expires])

    async def end(self, connection: RedisConnection, identity: str, owns: Owns) -> int | None:
        """Deletes the keys that are left and ours; returns how many.

        ``None``: it is not known what is left, so that nothing was deleted.
        """
        if not await connection.one("SISMEMBER", self._noted, _mark(identity)):
            await connection.one("UNLINK", self._noted)
            self._runs = False
            return None
        count, cursor = 0, 0
        while True:
            cursor, keys = await connection.one("SSCAN", self._noted, cursor, "COUNT", _COUNT)
            if gone := [key for key in keys if owns(key)]:
                count += await connection.one("UNLINK", *gone)
            if int(cursor) == 0:
                break
        await connection.one("UNLINK", self._noted)
        self._runs = False
        return count


def _mark(identity: str) -> str:
    """The member that says that the set is complete."""
    return f"snapshot {identity}"
