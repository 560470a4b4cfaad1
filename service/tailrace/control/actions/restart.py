"""Restarts what is halted of a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.control.action import Action
from tailrace.control.bodies import ApplyBody
from tailrace.control.outcome import ActionRefused, Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class RestartBody(ApplyBody):
    """Restarts what is halted of a scope, or one handler, from its checkpoint."""


async def _restart(control: Control, scope: str, body: ApplyBody, by: str) -> Done:
    from tailrace.control.follower import require_here
    from tailrace.control.subject import Subject

    subject = Subject(control.watcher(scope), body.handler)
    require_here(subject.watcher)
    before = subject.status.state.value
    if reason := control.supervisor.restart(scope, handler=body.handler):
        raise ActionRefused(409, reason)
    again = Subject(control.watcher(scope), body.handler)
    effect = await again.until(again.has_begun, body.wait or 0.0)
    state = effect.status.state.value
    return Done(f"{again} starts again", before, state, {"state": state})


RESTART = Action("POST", "/scopes/{name}/restart", RestartBody, _restart)
