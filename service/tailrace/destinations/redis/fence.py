"""Keeps out a process that was replaced: the epoch of the last owner of a scope is in Redis.

A process that was suspended in the middle of a call would otherwise write older changes over those
of the process that took over meanwhile.
"""

from tailrace.destination import ScopeContext
from tailrace.destinations.redis.server import Command, RedisConnection
from tailrace.errors import Fenced


async def claim(connection: RedisConnection, key: str, scope: ScopeContext) -> Command:
    """The first command of the next transaction, which fails if another process comes first.

    ``key``: that of the epoch. Raises :class:`Fenced` if a later process has written.
    """
    _, stored = await connection.each([("WATCH", key), ("GET", key)])
    if stored is not None and int(stored) > scope.epoch:
        raise Fenced(
            f"the key {key!r} of Redis has a later epoch, so another process follows the scope "
            "now. If none does because the store was replaced, delete that key"
        )
    return "SET", key, scope.epoch
