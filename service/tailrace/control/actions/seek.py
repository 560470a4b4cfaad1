"""Lets a scope, or one handler of it, continue at another position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action
from tailrace.control.bodies import OrderBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class SeekBody(OrderBody):
    """Lets a scope, or one handler, continue at another position: at a time, after a token, or
    where it was."""

    at: str | None = None
    """A time in ISO 8601 with its zone: changes from that second on come."""
    token: str | dict[str, Any] | None = None
    """A resume token, as `positions` shows them: changes after it come."""
    undo: bool = False
    """Where the scope was before its last seek."""
    dry_run: bool = False
    """Only say what would come again or be skipped."""


async def _seek(control: Control, scope: str, body: SeekBody, by: str) -> Done:
    from tailrace.control.seeking import Seeking

    subject, runtime = control.subject(scope, body.handler), control.runtime
    watcher = subject.watcher
    seeking = Seeking(
        control.positions(watcher),
        [name for name in subject.handlers if name],
        runtime.store,
        runtime.orders,
        lambda name: (watcher.status_of(name) if name else watcher.status).reached(name),
        body.handler,
    )
    sought = await seeking.find(at=body.at, token=body.token, undo=body.undo)
    details: dict[str, Any] = {**sought.details, "dry_run": body.dry_run}
    before, after = sought.named
    if body.dry_run:
        message = f"{subject}: {sought.effect}. Dry run: nothing was changed"
        return Done(message, before, f"{after} (dry run)", details)
    outcome = await control.order(subject, by, sought.order, body.wait)
    if outcome.effect.done:  # where it was is known only now: running handler calls have ended
        sought = await seeking.obeyed(sought, outcome.given.order.number)
        details |= sought.details
    message = f"{outcome.told('moved')}: {sought.effect}"
    return Done(message, before, after, {**details, **outcome.progress})


SEEK = Action("POST", "/scopes/{name}/seek", SeekBody, _seek)
