"""Sets aside the one change that the server cannot send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action
from tailrace.control.bodies import ApplyBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.offline import OfflineControl


class SkipBody(ApplyBody):
    """Sets aside the next change of a scope, if the server cannot send it, records the gap, and
    lets the scope go on after it."""

    dry_run: bool = False
    """Only say which change would be set aside."""


async def _skip(control: Control | OfflineControl, scope: str, body: SkipBody, by: str) -> Done:
    from tailrace.control.skipping import find_unsendable

    subject: Any = control.subject(scope, body.handler)
    async with control.positions(subject) as server:
        aside = await find_unsendable(server, control.checkpoints, body.handler)
    if body.dry_run:
        return aside.done()
    outcome = await control.apply(subject, by, aside.changes, body.wait, restarts=True)
    return aside.done(outcome.told("moved"))


SKIP = Action("POST", "/scopes/{name}/skip", SkipBody, _skip, offline=_skip)
