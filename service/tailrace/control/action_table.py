"""The table of actions, in the order of docs/http.md. A module is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.control.action import Action

TABLE = {
    "restart.RESTART": "scopes restart",
    "pause.PAUSE": "scopes pause",
    "pause.RESUME": "scopes resume",
    "seek.SEEK": "scopes seek",
    "skip.SKIP": "scopes skip",
    "positions.POSITIONS": "scopes positions",
    "why.WHY": "",
    "snapshot.SNAPSHOT": "",
    "replay.REPLAY": "",
    "replay.LAST_REPLAY": "",
    "verify.VERIFY": "",
    "verify.LAST_VERIFICATION": "",
    "dead_letters.SHOW": "",
    "dead_letters.REPLAY": "",
    "dead_letters.DISCARD": "",
    "dead_letters.REPLAY_ONE": "",
    "dead_letters.DISCARD_ONE": "",
    "reload.RELOAD": "reload",
}
"""The module of each action in :mod:`tailrace.control.actions`, its name there, and its command of
the shell; empty if that does more than to ask."""


def find_action(row: str) -> Action:
    """The action in a row of the table."""
    module, _, name = row.partition(".")
    action: Action = getattr(import_module(f"tailrace.control.actions.{module}"), name)
    return action


def actions() -> tuple[Action, ...]:
    """All of them."""
    return tuple(find_action(row) for row in TABLE)
