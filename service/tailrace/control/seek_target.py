"""A position that an operator means, and what comes again or is skipped there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from tailrace.control.server_positions import moment
from tailrace.model import Checkpoint, Position


@dataclass(frozen=True, slots=True)
class SeekTarget:
    """A position that the server accepts, of the pipeline and options with the ``fingerprint``.

    ``before``: the checkpoint; ``None`` without one. ``reached``: up to where changes have come.
    ``moves``: the same for groups of the handlers, where these stand in several places.
    """

    scope: str
    position: Position
    fingerprint: str
    before: Checkpoint | None
    reached: Timestamp | None
    handlers: Sequence[str]
    in_flight: Timestamp | None = None
    """Up to where changes are with handlers: some are handled before the scope moves."""
    moves: Sequence[SeekTarget] = ()

    @property
    def changes(self) -> Mapping[str, Any]:
        """The fields of a desired state that moves the scope there."""
        return {"seek": self.position, "fingerprint": self.fingerprint, "set_aside": ""}

    @property
    def effect(self) -> str:
        """What comes again or is skipped, for people."""
        if self.moves:
            return "; ".join(each.effect for each in self.moves)
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
                again = f"changes from {since} on that running handler calls still end come again"
                return f"{again}, to {handlers}"
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
    def course(self) -> tuple[object, ...]:
        """What the effect depends on, for handlers that move together."""
        since = self.before.position.cluster_time if self.before is not None else None
        times = (since, self.reached, self.in_flight)
        return self.direction, *(moment(each) if each is not None else None for each in times)

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
            **({"moves": [each.details for each in self.moves]} if self.moves else {}),
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
