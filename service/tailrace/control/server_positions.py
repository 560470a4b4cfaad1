"""Positions of a scope on its server: finds them by time, and tries them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import anyio
from bson.timestamp import Timestamp

from tailrace.control.outcome import ActionRefused
from tailrace.engine.error_policy import decide
from tailrace.errors import CommandFailed, DriverError, StreamError, describe
from tailrace.model import Position, PositionKind, Scope
from tailrace.model.time_text import utc_text
from tailrace.stream import ChangeStream, ChangeStreamOptions, CommandRunner, Driver
from tailrace.stream.server_clock import oplog_time, server_time

_TRIAL_SECONDS = 5.0
"""How long the server may take to refuse a position. It searches from an old one for longer."""


@dataclass(frozen=True, slots=True)
class ServerPositions:
    """Those of one scope, as it is followed."""

    scope: Scope
    options: ChangeStreamOptions
    driver: Driver
    clock: Callable[[], Timestamp | None]
    """The server's time; ``None`` if it is not known."""
    server: CommandRunner
    """Tells its time, and where its oplog begins."""

    async def at(self, text: str) -> Position:
        """The position at a time that the oplog has."""
        time = read_time(text, "at")
        (await self.oplog_times()).require(time, text, "at")
        return Position(PositionKind.IDLE, None, None, time)

    async def oplog_times(self) -> "OplogTimes":
        """The times that the server has now."""
        return OplogTimes(now=await self._now(), begin=await self._oplog_begin())

    async def _now(self) -> Timestamp:
        """The time of the server's last write; if nobody tells it, this machine's."""
        try:
            time = await server_time(self.server)
        except DriverError as error:
            raise _silent(self.scope, error) from error
        return time or self.clock() or Timestamp(int(datetime.now(UTC).timestamp()), 1)

    async def _oplog_begin(self) -> Timestamp | None:
        """The time of the oplog's oldest entry; ``None`` if this user may not ask (a mongos)."""
        try:
            return await oplog_time(self.server)
        except DriverError:
            return None

    async def require(self, position: Position) -> None:
        """Opens a stream there, as the scope would. Raises :class:`ActionRefused`."""
        options = replace(self.options, batch_size=1)
        stream = ChangeStream(self.driver, self.scope, options, position.start_point)
        name = self.scope.name
        if position.token is not None and position.cluster_time is not None:
            message = f"the token of {moment(position.cluster_time)}"
            (await self.oplog_times()).require(position.cluster_time, message, "token")
        try:
            with anyio.move_on_after(_TRIAL_SECONDS):
                async with stream:
                    await stream.next_batch()
                    await stream.next_batch(wait=False)
        except CommandFailed as error:
            if not decide(error, name).halt:
                raise _silent(self.scope, error) from error
            message = f"scope {name!r}: the server cannot continue there: {error}"
            advice = "the oplog may not reach back to it, or it is of another cluster or collection"
            raise ActionRefused(422, f"{message}: {advice}; choose a later time") from error
        except StreamError:
            pass  # an event ends the stream, or begins before it: the scope knows what to do
        except DriverError as error:
            raise _silent(self.scope, error) from error


@dataclass(frozen=True, slots=True)
class OplogTimes:
    """From ``begin``, the oldest entry of the oplog (``None``: unknown), to the last write."""

    begin: Timestamp | None
    now: Timestamp

    def require(self, time: Timestamp, text: str, key: str) -> None:
        """Refuses a time in the future, and one before the oplog."""
        if time > end_of_second(self.now):
            message = f"{text} is in the future: the server's time is {moment(self.now)}"
            raise ActionRefused(422, f"{key}: {message}; give a time up to that")
        if self.begin is not None and time < Timestamp(self.begin.time, 0):
            message = f"{text} is before the oplog, which begins at {moment(self.begin)}"
            raise ActionRefused(422, f"{key}: {message}; give a time from then on")


def _silent(scope: Scope, error: DriverError) -> ActionRefused:
    message = f"scope {scope.name!r}: nothing was changed: {describe(error)}"
    return ActionRefused(503, f"{message}. Try again when the server answers")


def end_of_second(time: Timestamp) -> Timestamp:
    """The last cluster time of its second."""
    return Timestamp(time.time, 2**32 - 1)


def moment(time: Timestamp | None) -> str:
    """A cluster time in UTC, to the second."""
    return "an unknown time" if time is None else utc_text(time)


def read_time(text: str, key: str = "at") -> Timestamp:
    """The cluster time in an ISO 8601 text with a zone, rounded down to the second."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!a:.60} is not an ISO 8601 time: write it as 2026-11-30T12:00:00Z"
        raise ActionRefused(400, f"{key}: {message}") from error
    if parsed.tzinfo is None:
        message = f"{text} has no time zone: write Z for UTC, or an offset as +02:00"
        raise ActionRefused(400, f"{key}: {message}")
    try:
        return Timestamp(int(parsed.astimezone(UTC).timestamp()), 1)
    except (ValueError, OverflowError) as error:
        message = f"{text} is not a time that MongoDB can store: choose one from 1970 to 2105"
        raise ActionRefused(422, f"{key}: {message}") from error
