"""Pauses a scope or a handler, and lets it continue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.control.action import Action, Stored
from tailrace.control.bodies import OrderBody
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class PauseBody(OrderBody):
    """Drains and saves a scope, or one handler, and hands over nothing more until it is resumed,
    whichever process follows it."""


class ResumeBody(OrderBody):
    """Lets a paused scope continue with all its handlers, or one handler."""


async def _pause(control: Control, scope: str, body: OrderBody, by: str) -> Done:
    return await _change(control, scope, body, by, paused=True)


async def _resume(control: Control, scope: str, body: OrderBody, by: str) -> Done:
    return await _change(control, scope, body, by, paused=False)


async def _change(control: Control, scope: str, body: OrderBody, by: str, *, paused: bool) -> Done:
    subject = control.subject(scope, body.handler)
    before = subject.status.state.value
    outcome = await control.order(
        subject,
        by,
        {"paused": paused},
        body.wait,
        obeyed=lambda handler: subject.is_paused(handler) is paused,
    )
    message = outcome.told("paused" if paused else "resumed")
    return Done(message, before, outcome.progress["state"], outcome.progress)


async def _stored(stored: Stored, scope: str, body: OrderBody) -> Done:
    from tailrace.control.orders import STORED, give, subject_text

    paused = isinstance(body, PauseBody)
    given = await give(stored.orders, scope, stored.by, {"paused": paused}, body.handler)
    subject = subject_text(scope, body.handler)
    message = f"{subject} is {'paused' if paused else 'resumed'}: {STORED}"
    if given.repeated:
        message = f"{subject} {'is paused already' if paused else 'was not paused'}"
    return Done(message, details={"state": None})


PAUSE = Action("POST", "/scopes/{name}/pause", PauseBody, _pause, stored=_stored)
RESUME = Action("POST", "/scopes/{name}/resume", ResumeBody, _resume, stored=_stored)
