"""The table of actions, in the order of docs/http.md. A module is imported when it is needed."""

from functools import cache
from importlib import import_module

from tailrace.control.action import Action

TABLE = (
    "restart.RESTART",
    "pause.PAUSE",
    "pause.RESUME",
    "seek.SEEK",
    "skip.SKIP",
    "positions.POSITIONS",
    "why.WHY",
    "snapshot.SNAPSHOT",
    "replay.REPLAY",
    "replay.LAST_REPLAY",
    "dead_letters.SHOW",
    "dead_letters.REPLAY",
    "dead_letters.DISCARD",
    "dead_letters.REPLAY_ONE",
    "dead_letters.DISCARD_ONE",
    "reload.RELOAD",
)
"""The module of each action in :mod:`tailrace.control.actions`, and its name there."""


def find_action(row: str) -> Action:
    """The action in a row of the table."""
    module, _, name = row.partition(".")
    action: Action = getattr(import_module(f"tailrace.control.actions.{module}"), name)
    return action


@cache
def actions() -> tuple[Action, ...]:
    """All of them."""
    return tuple(find_action(row) for row in TABLE)
