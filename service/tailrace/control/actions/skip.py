"""Sets aside the one change that the server cannot send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.control.action import Action, Stored
from tailrace.control.bodies import OrderBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class SkipBody(OrderBody):
    """Sets aside the next change of a scope, if the server cannot send it, records the gap, and
    lets the scope go on after it."""

    dry_run: bool = False
    """Only say which change would be set aside."""


async def _skip(control: Control, scope: str, body: SkipBody, by: str) -> Done:
    from tailrace.control.skipping import find_unsendable

    subject = control.subject(scope, body.handler)
    server = control.positions(subject.watcher)
    aside = await find_unsendable(server, control.runtime.store, body.handler)
    if body.dry_run:
        return aside.done()
    outcome = await control.order(subject, by, aside.order, body.wait, restarts=True)
    return aside.done(outcome.told("moved"))


async def _stored(stored: Stored, scope: str, body: SkipBody) -> Done:
    from tailrace.control.orders import STORED, give, subject_text
    from tailrace.control.skipping import find_unsendable

    async with stored.server() as server:
        aside = await find_unsendable(server, stored.checkpoints, body.handler)
    if body.dry_run:
        return aside.done()
    await give(stored.orders, scope, stored.by, aside.order, body.handler)
    return aside.done(f"{subject_text(scope, body.handler)}: {STORED}")


SKIP = Action("POST", "/scopes/{name}/skip", SkipBody, _skip, stored=_stored)
