"""Applies what has changed in the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.control.action import Action
from tailrace.control.bodies import Body
from tailrace.control.outcome import Done

if TYPE_CHECKING:
    from tailrace.control.control import Control


class ReloadBody(Body):
    """Reads the configuration again, and begins anew only what has changed; says what that is."""

    dry_run: bool = False
    """Only say what would change, by scope and by handler."""


async def _reload(control: Control, _: str, body: ReloadBody, by: str) -> Done:
    return await control.reload(dry_run=body.dry_run)


RELOAD = Action("POST", "/reload", ReloadBody, _reload)
