"""Sets one change aside that the server cannot send, so that its scope goes on after it.

The server cannot resume from such a change: it would have to make it again. So the scope's stream
starts at the time of the change and asks for later tokens only. No other change is left out, not
even one of the same transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tailrace.control.outcome import ActionRefused, Done
from tailrace.control.seek_target import shown
from tailrace.control.server_positions import ServerPositions
from tailrace.engine import CheckpointStore
from tailrace.errors import CheckpointError, DriverError, describe
from tailrace.event.naming import described
from tailrace.model import Checkpoint, Position, PositionKind, StartPoint
from tailrace.stream import UnsentEvent, find_unsent, fingerprint


@dataclass(frozen=True, slots=True)
class SetAside:
    """The change after the position of ``before``, which the server cannot send."""

    scope: str
    before: Checkpoint
    unsent: UnsentEvent
    fingerprint: str

    @property
    def event(self) -> str:
        """The change and why it cannot be sent, for people."""
        return f"{described(self.unsent.event)}, which the server cannot send: {self.unsent.error}"

    @property
    def position(self) -> Position:
        """Right after the change."""
        token = self.unsent.event.token
        return Position(PositionKind.SET_ASIDE, None, token, token.cluster_time)

    @property
    def changes(self) -> Mapping[str, Any]:
        """The fields of a desired state that moves the scope there."""
        return {
            "seek": self.position,
            "fingerprint": self.fingerprint,
            "set_aside": self.event,
        }

    def details(self, *, dry_run: bool) -> Mapping[str, Any]:
        """The same in JSON types."""
        before, after = shown(self.before.position), shown(self.position)
        return {"event": self.event, "from": before, "to": after, "dry_run": dry_run}

    def done(self, effect: str = "") -> Done:
        """The answer; without an ``effect`` that of a dry run."""
        if not effect:
            message = f"scope {self.scope!r} would go on after the {self.event}"
            message = f"{message}. Dry run: nothing was changed"
            return Done(message, details=self.details(dry_run=True))
        message, after = f"{effect}: past the {self.event}", str(self.position.start_point)
        return Done(message, after=after, details=self.details(dry_run=False))


async def find_unsendable(
    server: ServerPositions, checkpoints: CheckpointStore, handler: str | None = None
) -> SetAside:
    """What a scope stands before, or one handler.

    Raises :class:`ActionRefused` if the next change can be sent.
    """
    scope, name = server.scope, server.scope.name
    try:
        before = await checkpoints.load(name)
    except CheckpointError as error:
        raise ActionRefused(503, f"nothing was changed: {describe(error)}") from error
    if before is not None and handler is not None:
        before = before.alone(handler)
    if before is None or before.is_reset:
        raise ActionRefused(409, f"scope {name!r} has no position yet: there is nothing to skip")
    current = fingerprint(scope, server.options)
    position = before.position
    start = position.start_point
    if before.fingerprint not in ("", current) and position.kind is not PositionKind.SET_ASIDE:
        start = StartPoint(at_operation_time=position.cluster_time)
    try:
        unsent = await find_unsent(server.driver, scope, server.options, start)
    except DriverError as error:
        message = f"scope {name!r}: nothing was changed: {describe(error)}"
        raise ActionRefused(503, f"{message}. Try again when the server answers") from error
    if unsent is None:
        message = f"scope {name!r}: the server can send its next change, or there is none"
        advice = f"a scope that is halted continues with 'tailrace scopes restart {name}'"
        raise ActionRefused(409, f"{message}: nothing was skipped; {advice}")
    return SetAside(name, before, unsent, current)
