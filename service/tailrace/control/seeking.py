"""Finds the position that an operator means, tries it, and says what it would repeat or skip."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import anyio
from bson.timestamp import Timestamp

from tailrace.control.bodies import SeekBody
from tailrace.control.outcome import ActionRefused
from tailrace.engine import CheckpointStore, CommandRunner, OrderStore
from tailrace.errors import (
    CheckpointError,
    CommandFailed,
    DriverError,
    StreamError,
    describe,
)
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken, Scope
from tailrace.stream import ChangeStream, ChangeStreamOptions, Driver, fingerprint

_TRIAL_SECONDS = 5.0
"""How long the server may take to refuse a position. It searches from an old one for longer."""


@dataclass(frozen=True, slots=True)
class Seeking:
    """One scope, as it is followed. ``handlers``: the names of those that get its changes."""

    scope: Scope
    options: ChangeStreamOptions
    handlers: Sequence[str]
    checkpoints: CheckpointStore
    orders: OrderStore
    driver: Driver
    now: Callable[[], Timestamp | None]
    """The server's time; ``None`` if it is not known."""
    server: CommandRunner | None = None
    """Tells where its oplog begins."""

    async def find(self, body: SeekBody) -> "Sought":
        """The position that is meant. Raises :class:`ActionRefused`."""
        if (body.at is not None) + (body.token is not None) + body.undo != 1:
            raise ActionRefused(400, "give exactly one of at, token and undo")
        name = self.scope.name
        try:
            before = await self.checkpoints.load(name)
            former = await self.orders.positions(name)
        except CheckpointError as error:
            raise ActionRefused(503, f"nothing was changed: {describe(error)}") from error
        before = None if before is not None and before.is_reset else before
        current = fingerprint(self.scope, self.options)
        if body.undo:
            obeyed = before.obeyed if before is not None else 0
            found = next((each for each in former if each.obeyed < obeyed), None)
            if found is None:
                told = f"scope {name!r} was not moved by a seek that is kept: there is none to undo"
                raise ActionRefused(409, f"{told}; choose a position with at or token")
            position, of = found.position, found.fingerprint
        elif body.token is not None:
            token = read_token(body.token)
            known = next((each for each in former if each.position.token == token), None)
            position = known.position if known else _after(token)
            of = known.fingerprint if known else current
        else:
            position, of = await self.position_at(body.at or ""), current
        if of != current:
            if position.cluster_time is None:
                told = "that position is of another pipeline, and its time is not known"
                raise ActionRefused(422, f"scope {name!r}: {told}: choose a time with at")
            position = Position(PositionKind.IDLE, None, None, position.cluster_time)
        await self.try_at(position)
        return Sought(name, position, current, before, self.handlers)

    async def position_at(self, text: str, key: str = "at") -> Position:
        """The position at a time that the oplog has."""
        time, now = read_time(text, key), self.server_time()
        if time > now:
            told = f"{text} is in the future: the server's time is {moment(now)}"
            raise ActionRefused(422, f"{key}: {told}; give a time up to that")
        begin = await self._oplog_begin()
        if begin is not None and time < Timestamp(begin.time, 0):
            told = f"{text} is before the oplog, which begins at {moment(begin)}"
            raise ActionRefused(422, f"{key}: {told}; give a time from then on")
        return Position(PositionKind.IDLE, None, None, time)

    def server_time(self) -> Timestamp:
        """The server's time or, if it is not known, this machine's."""
        return self.now() or Timestamp(int(datetime.now(UTC).timestamp()), 1)

    async def _oplog_begin(self) -> Timestamp | None:
        """The time of the oplog's oldest entry; ``None`` if this user may not ask (a mongos)."""
        command = {"find": "oplog.rs", "sort": {"$natural": 1}, "limit": 1, "singleBatch": True}
        try:
            if self.server is None:
                return None
            reply = await self.server.run("local", {**command, "projection": {"_id": 0, "ts": 1}})
            time = reply["cursor"]["firstBatch"][0]["ts"]
        except (DriverError, LookupError):
            return None
        return time if isinstance(time, Timestamp) else None

    async def try_at(self, position: Position) -> None:
        """Opens a stream there, as the scope would. Raises :class:`ActionRefused`."""
        options = replace(self.options, batch_size=1)
        stream = ChangeStream(self.driver, self.scope, options, position.start_point)
        name = self.scope.name
        try:
            with anyio.move_on_after(_TRIAL_SECONDS):
                async with stream:
                    await stream.next_batch()
                    await stream.next_batch(wait=False)
        except CommandFailed as error:
            told = f"scope {name!r}: the server cannot continue there: {error}"
            advice = "the oplog may not reach back to it, or it is of another cluster or collection"
            raise ActionRefused(422, f"{told}: {advice}; choose a later time") from error
        except StreamError:
            pass  # an event ends the stream, or begins before it: the scope knows what to do
        except DriverError as error:
            told = f"scope {name!r}: nothing was changed: {describe(error)}"
            raise ActionRefused(503, f"{told}. Ask again when the server answers") from error


@dataclass(frozen=True, slots=True)
class Sought:
    """A position that the server accepts, of the pipeline and options with the ``fingerprint``.

    ``before``: the checkpoint; ``None`` without one.
    """

    scope: str
    position: Position
    fingerprint: str
    before: Checkpoint | None
    handlers: Sequence[str]

    @property
    def order(self) -> Mapping[str, Any]:
        """The fields of an order that moves the scope there."""
        return {"seek": self.position, "fingerprint": self.fingerprint}

    @property
    def effect(self) -> str:
        """What comes again or is skipped, for people."""
        to = moment(self.position.cluster_time)
        if self.before is None:
            return f"the scope has no position: it continues at {to}"
        since = moment(self.before.position.cluster_time)
        handlers = ", ".join(self.handlers) or "no handler"
        match self.direction:
            case "back":
                return f"changes from {to} to {since} come again, to {handlers}"
            case "forward":
                return f"changes from {since} to {to} are skipped, for {handlers}"
            case "none":
                return f"nothing comes again and nothing is skipped: it is there, at {since}"
        return f"changes between {since} and {to} come again or are skipped: a time is not known"

    @property
    def direction(self) -> str:
        """``back``, ``forward``, ``none`` or ``unknown``."""
        if self.before is None:
            return "unknown"
        here, there = self.before.position, self.position
        if here.token is not None and here.token == there.token:
            return "none"
        if here.cluster_time is None or there.cluster_time is None:
            return "unknown"
        if here.cluster_time != there.cluster_time:
            return "back" if there.cluster_time < here.cluster_time else "forward"
        if here.token is not None and there.token is not None:
            return "forward" if here.token.precedes(there.token) else "back"
        return "back"

    @property
    def named(self) -> tuple[str, str]:
        """Where the scope was and where it continues, for the log: times, or digests of tokens."""
        here = self.before.position if self.before is not None else None
        return _named(here), _named(self.position)

    @property
    def details(self) -> Mapping[str, Any]:
        """The same in JSON types."""
        here = self.before.position if self.before is not None else None
        since = here.cluster_time if here is not None else None
        known = [each.time for each in (since, self.position.cluster_time) if each is not None]
        return {
            "direction": self.direction,
            "from": shown(here) if here is not None else None,
            "to": shown(self.position),
            "seconds": abs(known[1] - known[0]) if len(known) == 2 else None,
            "handlers": list(self.handlers),
        }


def shown(position: Position) -> Mapping[str, Any]:
    """A position as ``seek`` takes it, in JSON types."""
    time = position.cluster_time
    return {
        "at": moment(time) if time is not None else None,
        "token": position.token.to_json() if position.token is not None else None,
    }


def _named(position: Position | None) -> str:
    if position is None:
        return "no position"
    if position.cluster_time is None and position.token is not None:
        return f"token {position.token.digest}"
    return moment(position.cluster_time)


def moment(time: Timestamp | None) -> str:
    """A cluster time in UTC, to the second."""
    if time is None:
        return "an unknown time"
    return time.as_datetime().isoformat(timespec="seconds").replace("+00:00", "Z")


def read_time(text: str, key: str = "at") -> Timestamp:
    """The cluster time in an ISO 8601 text with a zone, rounded down to the second."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        told = f"{text!a:.60} is not an ISO 8601 time: write it as 2026-11-30T12:00:00Z"
        raise ActionRefused(400, f"{key}: {told}") from error
    if found.tzinfo is None:
        told = f"{text} has no time zone: write Z for UTC, or an offset as +02:00"
        raise ActionRefused(400, f"{key}: {told}")
    try:
        return Timestamp(int(found.astimezone(UTC).timestamp()), 1)
    except (ValueError, OverflowError) as error:
        told = f"{text} is not a time that MongoDB can store: choose one from 1970 to 2105"
        raise ActionRefused(422, f"{key}: {told}") from error


def read_token(given: str | Mapping[str, Any]) -> ResumeToken:
    """The token in a document, its Extended JSON, or the hexadecimal text of its ``_data``."""
    told = 'token: it is not a resume token: give a document, as {"_data": "8265..."}'
    try:
        if isinstance(given, str) and not given.lstrip().startswith("{"):
            bytes.fromhex(given)
            token = ResumeToken.of({"_data": given.strip()}) if given.strip() else None
        else:
            token = ResumeToken.from_json(given if isinstance(given, str) else json.dumps(given))
    except (ValueError, OverflowError) as error:
        raise ActionRefused(400, told) from error
    if token is None or not token.document:
        raise ActionRefused(400, told)
    return token


def _after(token: ResumeToken) -> Position:
    """After a token that may be an invalidate event's: ``startAfter`` accepts any."""
    return Position(PositionKind.INVALIDATE, token, token, token.cluster_time)
