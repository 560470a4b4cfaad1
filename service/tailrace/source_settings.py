"""What the source cannot do with the settings, for ``run``, a reload and ``check --connect``."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from bson.timestamp import Timestamp

from tailrace.assembly import SPARE_MS
from tailrace.config.settings import Settings
from tailrace.config.subscriptions import Beginning, beginnings
from tailrace.drivers import socket_seconds
from tailrace.errors import ConfigurationError, Problem
from tailrace.model.time_text import utc_text

_AWAIT_MS = 1000
"""How long a read waits for a change without ``max_await_time_ms`` (mongod, awaitDataState)."""
_EARLY_SECONDS = 60
"""A scope may begin this much later: clocks differ, and an idle server's time stands still."""


async def require_readable(
    settings: Settings, now: Callable[[], Awaitable[Timestamp | None]]
) -> None:
    """Raises :class:`ConfigurationError` with every problem. ``now`` asks for the server's time."""
    problems = list(_interrupted(settings))
    # Every scope has a route: the start of a scope that none of its handlers has is of no effect.
    begins = [each for scope in settings.scopes for each in beginnings(settings, scope).values()]
    if any(each.start.at_operation_time for each in begins):
        server_time = await now()
        problems += _in_future(begins, server_time or Timestamp(int(time.time()), 1))
    if problems:
        raise ConfigurationError(*problems)


def _interrupted(settings: Settings) -> Iterator[Problem]:
    """A read that waits for longer than its socket may be silent fails, again and again."""
    seconds = socket_seconds(settings.mongodb.uri.get_secret_value())
    longest = max((scope.max_await_time_ms or _AWAIT_MS for scope in settings.scopes), default=0)
    if seconds and seconds * 1000 < longest + SPARE_MS:
        yield Problem(
            "mongodb.uri",
            f"socketTimeoutMS={seconds * 1000:.0f} ends reads that wait up to {longest} ms for a "
            f"change: leave it out, or give at least {longest + SPARE_MS}",
        )


def _in_future(begins: Sequence[Beginning], now: Timestamp) -> Iterator[Problem]:
    starts = {each.start_path: each.start.at_operation_time for each in begins}
    for path, start in starts.items():
        if start is not None and start.time > max(now.time, time.time()) + _EARLY_SECONDS:
            yield Problem(
                path,
                f"{utc_text(start)} is in the future: no change would come until then, and the "
                f"server's time is {utc_text(now)}; give a time up to that, or now",
            )
