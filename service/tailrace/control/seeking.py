"""Finds the position that an operator means, tries it, and says what it would repeat or skip."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bson.timestamp import Timestamp

from tailrace.control.bodies import SeekBody
from tailrace.control.outcome import ActionRefused
from tailrace.control.server_positions import ServerPositions, moment
from tailrace.engine import CheckpointStore, OrderStore
from tailrace.engine.seek import furthest
from tailrace.errors import CheckpointError, describe
from tailrace.model import Checkpoint, Position, PositionKind, ResumeToken
from tailrace.model.order import Order
from tailrace.model.subscription import Subscription
from tailrace.stream import fingerprint


@dataclass(frozen=True, slots=True)
class Seeking:
    """One scope, as it is followed. ``handlers``: the names of those that are to move. ``alone``:
    the only one, if not all are meant."""

    server: ServerPositions
    handlers: Sequence[str]
    checkpoints: CheckpointStore
    orders: OrderStore
    now: tuple[Position, Timestamp | None] | None = None
    """As of :meth:`tailrace.engine.Status.reached`: later than what is saved."""
    alone: str | None = None

    async def find(self, body: SeekBody) -> "SeekTarget":
        """The position that is meant. Raises :class:`ActionRefused`."""
        if (body.at is not None) + (body.token is not None) + body.undo != 1:
            raise ActionRefused(400, "give exactly one of at, token and undo")
        name = self.server.scope.name
        try:
            before = self._meant(await self.checkpoints.load(name))
            former = await self._former()
            given = await self.orders.load(name)
        except CheckpointError as error:
            raise ActionRefused(503, f"nothing was changed: {describe(error)}") from error
        before = None if before is not None and before.is_reset else before
        # A position moves while no change comes, too: then it counts as where it is saved.
        if before is not None and self.now and _moved(before.position, self.now[0]):
            before = replace(before, position=self.now[0])
        current = fingerprint(self.server.scope, self.server.options)
        if body.undo:
            obeyed = before.obeyed if before is not None else 0
            if given is not None and self._sought(given) > obeyed:  # it has not moved yet: it stays
                found = before
            else:
                found = next((each for each in former if each.obeyed < obeyed), None)
            if found is None:
                message = f"{self} was not moved by a seek that is kept: there is none to undo"
                raise ActionRefused(409, f"{message}; choose a position with at or token")
            position, of = found.position, found.fingerprint
        elif body.token is not None:
            token = read_token(body.token)
            known = next((each for each in former if each.position.token == token), None)
            position = known.position if known else _after(token)
            of = known.fingerprint if known else current
        else:
            position, of = await self.server.at(body.at or ""), current
        if of != current:
            if position.cluster_time is None:
                message = "that position is of another pipeline, and its time is not known"
                raise ActionRefused(422, f"{self}: {message}: choose a time with at")
            position = Position(PositionKind.IDLE, None, None, position.cluster_time)
        await self.server.require(position)
        reached = furthest("", before.last, former).cluster_time if before is not None else None
        in_flight = self.now[1] if self.now is not None else None
        return SeekTarget(name, position, current, before, reached, self.handlers, in_flight)

    def __str__(self) -> str:
        scope = f"scope {self.server.scope.name!r}"
        return scope if self.alone is None else f"handler {self.alone!r} of {scope}"

    def _meant(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        """What it says of the handlers that are to move."""
        if checkpoint is None or self.alone is None:
            return checkpoint
        return checkpoint.alone(self.alone)

    async def _former(self) -> Sequence[Checkpoint]:
        found = await self.orders.positions(self.server.scope.name)
        meant = [self._meant(each) for each in found]
        return [each for each in meant if each is not None]

    def _sought(self, order: Order) -> int:
        """The number of the last order that moves them."""
        return order.sought if self.alone is None else order.of(self.alone).sought

    async def obeyed(self, target: "SeekTarget", number: int) -> "SeekTarget":
        """The same, from where the scope was when it obeyed the order with this number."""
        try:
            former = await self._former()
        except CheckpointError:
            return target
        left = next((i for i, each in enumerate(former) if each.obeyed < number), None)
        if left is None or target.before is None:
            return target
        if target.in_flight is None or not _moved(target.before.position, former[left].position):
            return replace(target, in_flight=None)
        reached = furthest("", former[left].last, former[left:]).cluster_time
        return replace(target, before=former[left], reached=reached, in_flight=None)


@dataclass(frozen=True, slots=True)
class SeekTarget:
    """A position that the server accepts, of the pipeline and options with the ``fingerprint``.

    ``before``: the checkpoint; ``None`` without one. ``reached``: up to where changes have come.
    """

    scope: str
    position: Position
    fingerprint: str
    before: Checkpoint | None
    reached: Timestamp | None
    handlers: Sequence[str]
    in_flight: Timestamp | None = None
    """Up to where changes are with handlers: some are handled before the scope moves."""

    @property
    def order(self) -> Mapping[str, Any]:
        """The fields of an order that moves the scope there."""
        return {"seek": self.position, "fingerprint": self.fingerprint}

    @property
    def effect(self) -> str:
        """What comes again or is skipped, for people."""
        to = moment(self.position.cluster_time)
        if self.before is None:
            return f"there is no position yet: it continues at {to}"
        since = moment(self.before.position.cluster_time)
        handlers = ", ".join(self.handlers) or "no handler"
        match self.direction:
            case "back":
                more = ", and so do those that running handler calls end until then"
                again = f"changes from {to} to {since} come again, to {handlers}"
                return f"{again}{more if self.in_flight is not None else ''}"
            case "forward":
                until = self.position.cluster_time
                if self.reached is not None and until is not None and until <= self.reached:
                    message = f"changes from {since} to {to} do not come again"
                    return f"{message}: they came before, or were skipped before"
                if self.in_flight is not None and until is not None and until <= self.in_flight:
                    flying = f"changes from {since} to {moment(self.in_flight)} are with handlers"
                    message = f"{flying} now: of those before {to} the unhandled ones are skipped"
                    return f"{message}, and the handled ones after it come again"
                return f"changes from {moment(self.reached)} to {to} are skipped, for {handlers}"
            case "none" if self.in_flight is not None:
                return f"changes from {since} on that running handler calls still end come again"
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


async def positions_of(
    scope: str, checkpoints: CheckpointStore, orders: OrderStore, handler: str | None = None
) -> Mapping[str, Any]:
    """The current positions of a scope's handlers, and former ones, in JSON types.

    Handlers that stand together have one. With ``handler``, only those of this one.
    """
    try:
        now, former = await checkpoints.load(scope), await orders.positions(scope)
    except CheckpointError as error:
        raise ActionRefused(503, describe(error)) from error
    known = [now] if now is not None and not now.is_reset else []
    found = list[Mapping[str, Any]]()
    for each in [*known, *former]:
        for names, of in _together(each, handler):
            shows = {"handlers": names, **shown(of.position), "kind": of.position.kind.value}
            if handler is not None and found and shows.items() <= found[-1].items():
                continue  # the others have moved
            saved = {"saved_at": each.saved_at.isoformat(), "epoch": each.epoch}
            found.append({**shows, **saved, "current": each is now})
    unreadable = sorted(now.damaged) if now is not None else []
    return {"scope": scope, "positions": found, "unreadable": unreadable}


def _together(
    checkpoint: Checkpoint, handler: str | None
) -> Sequence[tuple[Sequence[str], Subscription]]:
    """The handlers that stand together and where, those that stand last first."""
    if handler is not None:
        known = checkpoint.of(handler)
        return [] if known is None else [([handler], known)]
    found = [([name for name in checkpoint.handlers if name], checkpoint.last)]
    for name, each in checkpoint.apart.items():
        same = next((names for names, of in found if of.position == each.position), None)
        if same is None:
            found.append(([name], each))
        else:
            same.append(name)
    return found


def _moved(before: Position, now: Position) -> bool:
    """Whether changes came between two positions."""
    last = now.event_token
    return last is not None and before.progress.covers(last, last.cluster_time) is False


def _named(position: Position | None) -> str:
    if position is None:
        return "no position"
    if position.cluster_time is None and position.token is not None:
        return f"token {position.token.digest}"
    return moment(position.cluster_time)


def read_token(given: str | Mapping[str, Any]) -> ResumeToken:
    """The token in a document, its Extended JSON, or the hexadecimal text of its ``_data``."""
    message = 'token: it is not a resume token: give a document, as {"_data": "8265..."}'
    try:
        if isinstance(given, str) and not given.lstrip().startswith("{"):
            bytes.fromhex(given)
            token = ResumeToken.of({"_data": given.strip()}) if given.strip() else None
        else:
            token = ResumeToken.from_json(given if isinstance(given, str) else json.dumps(given))
    except (ValueError, OverflowError) as error:
        raise ActionRefused(400, message) from error
    if token is None or not token.document:
        raise ActionRefused(400, message)
    return token


def _after(token: ResumeToken) -> Position:
    """After a token that may be an invalidate event's: ``startAfter`` accepts any."""
    return Position(PositionKind.INVALIDATE, token, token, token.cluster_time)
