"""Lets a scope, or one handler of it, continue at another position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from tailrace.control.action import Action
from tailrace.control.bodies import ApplyBody, Metavar
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.offline import OfflineControl


class SeekBody(ApplyBody):
    """Lets a scope, or one handler, continue at another position: at a time, after a token, or
    where it was."""

    at: Annotated[str | None, Metavar("TIME")] = None
    """A time in ISO 8601 with its zone: changes from that second on come."""
    token: Annotated[str | dict[str, Any] | None, Metavar("JSON")] = None
    """A resume token, as `positions` shows them: changes after it come."""
    undo: bool = False
    """Where the scope was before its last seek."""
    dry_run: bool = False
    """Only say what would come again or be skipped."""


async def _seek(control: Control | OfflineControl, scope: str, body: SeekBody, by: str) -> Done:
    from tailrace.control.seeking import Seeking

    subject: Any = control.subject(scope, body.handler)
    handlers = [name for name in subject.handlers if name]
    async with control.positions(subject) as server:
        seeking = Seeking(
            server,
            handlers,
            control.checkpoints,
            control.desired_states,
            subject.reached,
            body.handler,
        )
        target = await seeking.find(at=body.at, token=body.token, undo=body.undo)
    details: dict[str, Any] = {**target.details, "dry_run": body.dry_run}
    before, after = target.named
    if body.dry_run:
        message = f"{subject}: {target.effect}. Dry run: nothing was changed"
        return Done(message, before, f"{after} (dry run)", details)
    outcome = await control.apply(subject, by, target.changes, body.wait)
    if outcome.done:  # where it was is known only now: running handler calls have ended
        target = await seeking.applied(target, outcome.stored.desired.generation)
        details |= target.details
    message = outcome.told("moved", target.effect)
    return Done(message, before, after, {**details, **outcome.progress})


SEEK = Action("POST", "/scopes/{name}/seek", SeekBody, _seek, offline=_seek)
