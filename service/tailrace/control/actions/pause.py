"""Pauses a scope or a handler, and lets it continue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action
from tailrace.control.bodies import ApplyBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control
    from tailrace.control.offline import OfflineControl


class PauseBody(ApplyBody):
    """Drains and saves a scope, or one handler, and hands over nothing more until it is resumed,
    whichever process follows it."""


class ResumeBody(ApplyBody):
    """Lets a paused scope continue with all its handlers, or one handler."""


async def _change(
    control: Control | OfflineControl, scope: str, body: ApplyBody, by: str, *, paused: bool
) -> Done:
    subject: Any = control.subject(scope, body.handler)
    before = subject.state
    outcome = await control.apply(
        subject,
        by,
        {"paused": paused},
        body.wait,
        is_applied=lambda handler: subject.is_paused(handler) is paused,
    )
    message = outcome.told("paused" if paused else "resumed")
    return Done(message, before, outcome.progress["state"], outcome.progress)


_pause, _resume = partial(_change, paused=True), partial(_change, paused=False)
PAUSE = Action("POST", "/scopes/{name}/pause", PauseBody, _pause, offline=_pause)
RESUME = Action("POST", "/scopes/{name}/resume", ResumeBody, _resume, offline=_resume)
