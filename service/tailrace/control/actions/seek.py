"""Lets a scope, or one handler of it, continue at another position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from tailrace.control.action import Action, Stored
from tailrace.control.bodies import Metavar, OrderBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class SeekBody(OrderBody):
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


async def _stored(stored: Stored, scope: str, body: SeekBody) -> Done:
    from tailrace.control.orders import STORED, give, subject_text
    from tailrace.control.seeking import Seeking

    handlers = stored.handlers if body.handler is None else [body.handler]
    async with stored.server() as server:
        seeking = Seeking(server, handlers, stored.checkpoints, stored.orders, alone=body.handler)
        sought = await seeking.find(at=body.at, token=body.token, undo=body.undo)
    message = f"{subject_text(scope, body.handler)}: {sought.effect}"
    details = {**sought.details, "dry_run": body.dry_run}
    if body.dry_run:
        return Done(f"{message}. Dry run: nothing was changed", details=details)
    await give(stored.orders, scope, stored.by, sought.order, body.handler)
    return Done(f"{message}. {STORED[0].upper()}{STORED[1:]}", details={**details, "state": None})


SEEK = Action("POST", "/scopes/{name}/seek", SeekBody, _seek, stored=_stored)
