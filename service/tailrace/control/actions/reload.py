"""Applies what has changed in the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.control.action import Action, message_of
from tailrace.control.bodies import Body
from tailrace.control.outcome import Done
from tailrace.observe.terminal_text import columns

if TYPE_CHECKING:
    from tailrace.control.control import Control


class ReloadBody(Body):
    """Reads the configuration again, and restarts only what has changed; says what that is."""

    dry_run: bool = False
    """Only say what would change, by scope and by handler."""


async def _reload(control: Control, _: str, body: ReloadBody, by: str) -> Done:
    return await control.reload(dry_run=body.dry_run)


def _text(answer: Mapping[str, Any]) -> str:
    return columns(("PART", "NAME", "EFFECT", "BECAUSE"), list(_rows(answer))) + message_of(answer)


def _rows(answer: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, change in answer["scopes"].items():
        yield "scope", name, change["effect"], ", ".join(change["because"])
    for name, effect in answer["handlers"].items():
        yield "handler", name, effect, ""


RELOAD = Action("POST", "/reload", ReloadBody, _reload, text=_text)
